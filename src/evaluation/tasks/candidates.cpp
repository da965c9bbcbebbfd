#include "src/evaluation/tasks/candidates.h"

#include <algorithm>
#include <optional>

#include <tessera/base/printable.h>
#include <tessera/base/text.h>

namespace tessera {
namespace {

using Names = std::vector<std::string>;

std::optional<std::int64_t> place_in(const Names& names, const std::string& name) {
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) return std::nullopt;
  return found - names.begin();
}

std::vector<std::int64_t> places_by_name(const Names& task, const Names& source, std::int64_t background) {
  std::vector<std::int64_t> out;
  for (std::size_t i = 0; i < source.size(); ++i)
    out.push_back(place_in(task, source[i])
                      .value_or(static_cast<std::int64_t>(i) == background ? -1 : Candidates::kNotAsked));
  return out;
}

/// Returns a sentence such as ". In their members, label is looked for in cls (label_keys), ...". Returns an empty string if
/// the source cannot describe where it finds labels.
std::string where_labels_are(const Source& source) {
  const std::string where = source.describe_fields({"label"});
  return where.empty() ? "" : ". " + where;
}

}  // namespace

bool meant_by_name(const Names& task, const Names& source) {
  for (std::size_t i = 0; i < source.size(); ++i)
    if (const auto place = place_in(task, source[i]); place && *place != static_cast<std::int64_t>(i)) return true;
  return false;
}

std::function<std::int64_t(const Sample&)> labels_of_train(const Source& train, const Source& test) {
  const Names known = train.class_names(), own = test.class_names();
  if (!meant_by_name(known, own)) return [](const Sample& sample) { return sample.label; };
  return [own, place = places_by_name(known, own, -1), from = train.describe(), to = test.describe()](const Sample& sample) {
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

std::int64_t Candidates::label_of(const Sample& sample, const Source& source) const {
  const auto not_listed = [&](const std::string& name) {
    throw TaskMisfit(concat(source.describe(), " has a sample of class \"", printable(name, 60),
                            "\", which is not among ", task, ".classes (", names.size(), "): list it there",
                            where_labels_are(source)));
  };
  if (sample.label < 0) {
    const auto found = place_in(names, sample.class_name);
    if (!found) not_listed(sample.class_name);
    return *found;
  }
  const std::size_t known = place.size(), label = static_cast<std::size_t>(sample.label);
  if (label >= known)
    throw TaskMisfit(concat(source.describe(), " has a sample of class ", sample.label, ", but there are only ", known,
                            " class names (0 to ", known - 1, "): list them all in ", task,
                            ".classes, or in `classes` of the data", where_labels_are(source)));
  if (place[label] == kNotAsked) not_listed(source_names[label]);
  return place[label];
}

Required Candidates::asked(const Source& source) const {
  Required out = labeled_or_named();
  out.in = [this, &source, named = out.in](const Sample& sample) {
    return named(sample) && label_of(sample, source) >= 0;
  };
  return out;
}

Candidates candidates_for(const TextList& classes, const Source& source, const std::string& task) {
  const Names own = source.class_names();
  Candidates out{.task = task, .names = {}, .place = {}, .source_names = own};
  const Names names = class_names_for(classes, source, task);
  if (!classes.items.empty() && meant_by_name(names, own)) {
    out.names = names;
    out.place = places_by_name(names, own, source.background_class());
    return out;
  }
  if (!own.empty() && names.size() > own.size())
    throw TaskMisfit(concat(source.describe(), " has ", own.size(), " classes, but ", task, ".classes names ", names.size(),
                            ", which would be matched by their order: leave out classes that the data do not have, or use "
                            "the data's own class names"));
  const std::int64_t background = classes.items.empty() ? source.background_class() : -1;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const bool left_out = static_cast<std::int64_t>(i) == background;
    out.place.push_back(left_out ? -1 : std::ssize(out.names));
    if (!left_out) out.names.push_back(names[i]);
  }
  return out;
}

}  // namespace tessera
