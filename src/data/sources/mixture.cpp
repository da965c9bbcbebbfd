#include <algorithm>
#include <array>
#include <set>
#include <sstream>

#include <c10/util/Exception.h>

#include <tessera/base/error.h>
#include <tessera/data/sources/mixture.h>
#include <tessera/data/stream.h>

namespace tessera {
namespace {

constexpr std::array<const char*, 4> kModeNames = {"accumulate", "sequential", "concat", "weighted"};

MixtureMode mode_of(const std::string& name) {
  const auto found = std::find(kModeNames.begin(), kModeNames.end(), name);
  TORCH_CHECK(found != kModeNames.end(), "mixture: unknown mode ", name);
  return static_cast<MixtureMode>(found - kModeNames.begin());
}

std::string number_text(double value) {
  std::ostringstream out;
  out << value;
  return out.str();
}

}  // namespace

NestedSourceSettings config::Value<NestedSourceSettings>::read(const Node& node, const std::string& path, const NestedSourceSettings&) {
  return {sources().resolve(Value<ModuleSettings>::read(node, path, {}), path)};
}

std::optional<config::Problem> validate(const MixtureSettings& settings) {
  const auto problem = [](const std::string& text) { return config::Problem{"sources", text}; };
  if (settings.sources.empty()) return problem("is empty: name at least one source");
  std::set<std::string> labels;
  for (std::size_t i = 0; i < settings.sources.size(); ++i) {
    const MixtureComponentSettings& part = settings.sources[i];
    const std::string& label = part.label_or_name();
    if (part.source.name.empty()) return problem(concat("number ", i, " has no source: {source: {name: shapes}}"));
    if (part.source.name == "mixture")
      return problem(concat("number ", i, " is a mixture itself: put its sources into this list"));
    if (!labels.insert(label).second)
      return problem(concat("label ", label, " is used twice: give each source a label of its own"));
    if (settings.mode != "weighted" && part.weight != 1.0)
      return problem(concat(label, " has weight ", number_text(part.weight), ", but mode is ", settings.mode,
                            ": weights are for mode weighted"));
  }
  return std::nullopt;
}

Mixture::Mixture(MixtureMode mode, std::vector<Part> parts) : mode_(mode), parts_(std::move(parts)) {
  TORCH_CHECK(!parts_.empty(), "Mixture: no sources");
  first_.push_back(0);
  for (const Part& part : parts_) first_.push_back(first_.back() + part.source->size());
  find_classes();
}

void Mixture::find_classes() {
  class_names_ = parts_[0].source->class_names();
  background_class_ = parts_[0].source->background_class();
  same_classes_ = std::all_of(parts_.begin(), parts_.end(), [&](const Part& part) {
    return part.source->class_names() == class_names_ && part.source->background_class() == background_class_;
  });
  // Without names, equal numbers need not be equal classes.
  same_classes_ = same_classes_ && (parts_.size() == 1 || !class_names_.empty());
  if (same_classes_) return;
  class_names_.clear();
  background_class_ = -1;
}

std::size_t Mixture::part_of(std::int64_t index) const {
  TORCH_CHECK(index >= 0 && index < size(), "mixture: sample ", index, " of ", size());
  const auto next = std::upper_bound(first_.begin(), first_.end(), index);
  return static_cast<std::size_t>(next - first_.begin() - 1);
}

std::int64_t Mixture::caption_count(std::int64_t index) const {
  const std::size_t number = part_of(index);
  return parts_[number].source->caption_count(index - first_[number]);
}

std::string Mixture::name_of(std::int64_t index) const {
  const std::size_t number = part_of(index);
  return parts_[number].label + ": " + parts_[number].source->name_of(index - first_[number]);
}

Sample Mixture::get(std::int64_t index) const {
  const std::size_t number = part_of(index);
  const Part& part = parts_[number];
  try {
    Sample sample = part.source->get(index - first_[number]);
    sample.key = part.label + ":" + sample.key;
    if (same_classes_) return sample;
    sample.label = -1;
    sample.mask.clear();
    for (ObjectAnnotation& object : sample.objects) object.label = -1;
    return sample;
  } catch (const SampleError& error) {
    throw SampleError(error.reason(), concat(part.label, ": ", error.what()),
                      error.key().empty() ? "" : part.label + ":" + error.key());
  }
}

std::string Mixture::describe() const {
  std::string list;
  for (const Part& part : parts_) {
    list += concat(list.empty() ? "" : "; ", part.label, ": ", part.source->describe());
    if (mode_ == MixtureMode::weighted) list += concat(" x ", number_text(part.weight));
  }
  return concat("mixture (", kModeNames[static_cast<std::size_t>(mode_)], ") of {", list, "}");
}

std::shared_ptr<Source> make_mixture(const MixtureSettings& settings) {
  std::vector<Mixture::Part> parts;
  for (std::size_t i = 0; i < settings.sources.size(); ++i) {
    const MixtureComponentSettings& part = settings.sources[i];
    std::shared_ptr<Source> source = sources().make(part.source, concat("sources[", i, "].source"));
    if (dynamic_cast<const StreamSource*>(source.get()) != nullptr)
      user_error("mixture: source ", part.label_or_name(), " (", source->describe(),
                 ") is read as a stream, and streams cannot be mixed: give local, uncompressed tar files");
    parts.push_back({part.label_or_name(), std::move(source), part.weight});
  }
  return std::make_shared<Mixture>(mode_of(settings.mode), std::move(parts));
}

}  // namespace tessera
