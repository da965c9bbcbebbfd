#include <algorithm>
#include <cctype>
#include <numeric>
#include <optional>
#include <string_view>
#include <unordered_map>

#include "src/base/printable.h"
#include "src/evaluation/tasks/candidates.h"
#include <tessera/base/text.h>

namespace tessera {
namespace {

using Names = std::vector<std::string>;

std::optional<std::int64_t> place_in(const Names& names, const std::string& name) {
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) return std::nullopt;
  return found - names.begin();
}

/// Returns the words of a name in lower case, with a space before and after each word.
std::string spaced(const std::string& name) {
  std::string out = " ";
  for (const char letter : name) {
    const auto byte = static_cast<unsigned char>(letter);
    if (byte >= 0x80 || std::isalnum(byte) != 0)
      out += static_cast<char>(byte < 0x80 ? std::tolower(byte) : byte);
    else if (out.back() != ' ')
      out += ' ';
  }
  return out.back() == ' ' ? out : out + ' ';
}

Names spaced(const Names& names) {
  Names out;
  for (const std::string& name : names) out.push_back(spaced(name));
  return out;
}

/// Returns the index of the shortest name that contains `words` (`whole`: that equals them) and that is not taken; -1 if there is none.
/// All names are spaced().
std::int64_t place_of_words(const Names& names, const std::string& words, bool whole, const std::vector<std::int64_t>& taken) {
  std::int64_t best = -1;
  std::size_t least = std::string::npos;
  for (std::size_t i = 0; words != " " && i < names.size(); ++i) {
    const bool fits = whole ? names[i] == words : names[i].find(words) != std::string::npos;
    if (!fits || names[i].size() >= least || contains(taken, static_cast<std::int64_t>(i))) continue;
    best = static_cast<std::int64_t>(i);
    least = names[i].size();
  }
  return best;
}

/// Returns the index of each class among the task's names: of the same name, or of the same words. -1: there is none. Several classes may
/// have the same name: each gets a name of its own, at its own position if the names there are equal. Only if the task has fewer names than
/// there are classes, classes of the same name share one.
std::vector<std::int64_t> places_by_name(const Names& task, const Names& source) {
  std::vector<std::int64_t> out(source.size(), -1);
  for (std::size_t i = 0; i < std::min(task.size(), source.size()); ++i)
    if (task[i] == source[i]) out[i] = static_cast<std::int64_t>(i);
  std::unordered_map<std::string_view, std::vector<std::int64_t>> free;  // places not taken, the last one first
  for (auto i = std::ssize(task) - 1; i >= 0; --i) {
    const auto place = static_cast<std::size_t>(i);
    if (place >= out.size() || out[place] < 0) free[task[place]].push_back(i);
  }
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (out[i] >= 0) continue;
    if (const auto found = free.find(source[i]); found != free.end() && !found->second.empty()) {
      out[i] = found->second.back();
      found->second.pop_back();
    } else if (task.size() < source.size()) {
      out[i] = place_in(task, source[i]).value_or(-1);
    }
  }
  const Names words = spaced(task);
  for (std::size_t i = 0; i < out.size(); ++i)
    if (out[i] < 0) out[i] = place_of_words(words, spaced(source[i]), /*whole=*/true, out);
  return out;
}

/// Gives each class without a place the index of its name in other words. Changes nothing if such a class has none.
void add_places_by_words(const Names& task, const Names& source, std::vector<std::int64_t>& places) {
  std::vector<std::int64_t> out = places;
  const Names words = spaced(task);
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (out[i] < 0) out[i] = place_of_words(words, spaced(source[i]), /*whole=*/false, out);
    if (out[i] < 0) return;
  }
  places = std::move(out);
}

/// Returns a text such as "beach -> a dog, dog -> a beach".
std::string pairs_text(const Names& task, const Names& source, const std::vector<std::int64_t>& place) {
  constexpr std::size_t kMost = 20;
  std::string text;
  for (std::size_t i = 0; i < std::min(place.size(), kMost); ++i)
    text += concat(i > 0 ? ", " : "", printable(source[i], 60), " -> ",
                   place[i] < 0 ? "none" : printable(task[static_cast<std::size_t>(place[i])], 60));
  return place.size() > kMost ? concat(text, ", ... (", place.size(), " classes)") : text;
}

/// Returns the place of each class of the source in `names`. The background has no name of its own, and other classes may lack one.
std::vector<std::int64_t> places_of_labels(std::vector<std::int64_t> place, std::int64_t background) {
  for (std::size_t i = 0; i < place.size(); ++i)
    if (place[i] < 0 && static_cast<std::int64_t>(i) != background) place[i] = Candidates::kNotAsked;
  return place;
}

/// Returns a sentence such as ". In their members, label is looked for in cls (label_keys), ...". Returns an empty string if
/// the source cannot describe where it finds labels.
std::string where_labels_are(const Source& source) {
  const std::string where = source.describe_fields({"label"});
  return where.empty() ? "" : ". " + where;
}

}  // namespace

NamedClasses match_names(const Names& task, const Names& source) {
  std::vector<std::int64_t> place = places_by_name(task, source);
  const std::vector<std::int64_t> by_name = place;
  const bool none = std::ranges::all_of(place, [](std::int64_t each) { return each < 0; });
  // In lists of different lengths, a class that one list lacks could get a name that only contains its own: "hot dog" for "dog".
  if (none || task.size() == source.size()) add_places_by_words(task, source, place);
  const char* const how = place == by_name ? "names: " : none ? "words: " : "names and words: ";
  for (std::size_t i = 0; i < place.size(); ++i)
    if (place[i] >= 0 && place[i] != static_cast<std::int64_t>(i))
      return {true, place, concat("classes are matched by their ", how, pairs_text(task, source, place))};
  const std::size_t common = std::min(task.size(), source.size());
  if (std::equal(task.begin(), task.begin() + static_cast<std::ptrdiff_t>(common), source.begin())) return {};
  place.resize(common);
  const bool guessed = std::ranges::any_of(place, [](std::int64_t each) { return each < 0; });
  std::iota(place.begin(), place.end(), 0);
  return {false, {}, "names belong to classes by their position: " + pairs_text(task, source, place), guessed};
}

void add_note(const NamedClasses& matched, TaskResult& result, const std::string& before) {
  if (matched.note.empty()) return;
  result.notes.push_back(before + matched.note);
  if (matched.guessed) result.warnings.push_back(result.notes.back());
}

std::function<std::int64_t(const Sample&)> labels_of_train(const Source& train, const Source& test, TaskResult& result) {
  const Names known = train.class_names(), own = test.class_names();
  NamedClasses matched = match_names(known, own);
  add_note(matched, result, "test and training data: ");
  if (!matched.by_name) return [](const Sample& sample) { return sample.label; };
  return [own, place = std::move(matched.place), from = train.describe(), to = test.describe()](const Sample& sample) {
    const auto label = static_cast<std::size_t>(sample.label);
    if (label >= own.size() || place[label] < 0)
      throw TaskMisfit(concat(to, " has a sample of class ", sample.label, label < own.size() ? ", " + printable(own[label], 60) : "",
                              ", but no class of ", from, " has this name; their classes are matched by name"));
    return place[label];
  };
}

Required labeled_or_named() {
  Required out = labeled();
  out.in = [](const Sample& sample) { return sample.label >= 0 || !sample.class_name.empty(); };
  return out;
}

std::int64_t Candidates::label_of(const Sample& sample) const {
  const auto not_listed = [&](const std::string& name) {
    throw TaskMisfit(concat(source->describe(), " has a sample of class \"", printable(name, 60),
                            "\", which is not among ", task, ".classes (", names.size(), "): list it there",
                            where_labels_are(*source)));
  };
  if (sample.label < 0) {
    const auto found = place_in(names, sample.class_name);
    if (!found) not_listed(sample.class_name);
    return *found;
  }
  const std::size_t known = place.size(), label = static_cast<std::size_t>(sample.label);
  if (label >= known)
    throw TaskMisfit(concat(source->describe(), " has a sample of class ", sample.label, ", but there are only ", known,
                            " class names (0 to ", known - 1, "): list them all in ", task,
                            ".classes, or in `classes` of the data", where_labels_are(*source)));
  if (place[label] == kNotAsked) not_listed(source_names[label]);
  return place[label];
}

std::vector<std::int64_t> Candidates::labels_of(const std::vector<EvaluationSample>& samples) const {
  std::vector<std::int64_t> labels;
  for (const EvaluationSample& sample : samples) labels.push_back(label_of(sample.sample));
  return labels;
}

Required Candidates::asked() const {
  Required out = labeled_or_named();
  out.in = [this, named = out.in](const Sample& sample) { return named(sample) && label_of(sample) >= 0; };
  return out;
}

void Candidates::check(std::int64_t max_samples) const {
  check_samples(*source, "source", max_samples, labeled_or_named(), [this](const Sample& sample) { label_of(sample); });
}

Candidates candidates_for(const TextList& classes, std::shared_ptr<const Source> source, const std::string& task) {
  const Names own = source->class_names(), names = class_names_for(classes, *source, task);
  Candidates out{.source = std::move(source), .task = task, .names = {}, .place = {}, .source_names = own};
  if (!classes.items.empty()) out.matched = match_names(names, own);
  if (out.matched.by_name) {
    out.names = names;
    out.place = places_of_labels(out.matched.place, out.source->background_class());
    return out;
  }
  if (!own.empty() && names.size() > own.size())
    throw TaskMisfit(concat(out.source->describe(), " has ", own.size(), " classes, but ", task, ".classes names ", names.size(),
                            ", which would be matched by their order: leave out classes that the data do not have, or use "
                            "the data's own class names"));
  const std::int64_t background = classes.items.empty() ? out.source->background_class() : -1;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const bool left_out = static_cast<std::int64_t>(i) == background;
    out.place.push_back(left_out ? -1 : std::ssize(out.names));
    if (!left_out) out.names.push_back(names[i]);
  }
  return out;
}

}  // namespace tessera
