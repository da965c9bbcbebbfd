#include "src/data/sources/mixture.h"

#include <algorithm>
#include <array>
#include <set>

#include <c10/util/Exception.h>

#include <tessera/base/error.h>

namespace tessera {
namespace {

constexpr std::array<const char*, 4> kModeNames = {"accumulate", "sequential", "concat", "weighted"};

MixtureMode mode_of(const std::string& name) {
  const auto found = std::ranges::find(kModeNames, name);
  TORCH_CHECK(found != kModeNames.end(), "mixture: unknown mode ", name);
  return static_cast<MixtureMode>(found - kModeNames.begin());
}

/// Returns what `read` returns for a component, and adds the component's label to the SampleErrors that `read` throws.
template <class Read>
auto read_labeled(const std::string& label, const Read& read) {
  try {
    return read();
  } catch (const SampleError& error) {
    throw SampleError(error.reason(), concat(label, ": ", error.what()), error.key().empty() ? "" : label + ":" + error.key());
  }
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
    const MixtureComponentSettings& component = settings.sources[i];
    const std::string& label = component.label_or_name();
    if (component.source.name.empty()) return problem(concat("number ", i, " has no source: {source: {name: shapes}}"));
    if (component.source.name == "mixture") return problem(concat("number ", i, " is a mixture itself: put its sources into this list"));
    if (!labels.insert(label).second) return problem(concat("label ", label, " is used twice: give each source a label of its own"));
    if (settings.mode != "weighted" && component.weight != 1.0)
      return problem(concat(label, " has weight ", component.weight, ", but mode is ", settings.mode, ": weights are for mode weighted"));
  }
  return std::nullopt;
}

Mixture::Mixture(MixtureMode mode, std::vector<Component> components) : mode_(mode), components_(std::move(components)) {
  TORCH_CHECK(!components_.empty(), "Mixture: no sources");
  first_.push_back(0);
  for (const Component& component : components_) first_.push_back(first_.back() + component.source->size());
  find_classes();
}

void Mixture::find_classes() {
  class_names_ = components_[0].source->class_names();
  background_class_ = components_[0].source->background_class();
  same_classes_ = std::ranges::all_of(components_, [&](const Component& component) {
    return component.source->class_names() == class_names_ && component.source->background_class() == background_class_;
  });
  // Without class names, equal class indices in two sources need not mean the same class.
  same_classes_ = same_classes_ && (components_.size() == 1 || !class_names_.empty());
  if (same_classes_) return;
  class_names_.clear();
  background_class_ = -1;
}

double Mixture::depth_units() const {
  double out = components_[0].source->depth_units();
  for (const Component& component : components_) out = std::min(out, component.source->depth_units());
  return out;
}

std::pair<const Mixture::Component&, std::int64_t> Mixture::place_of(std::int64_t index) const {
  TORCH_CHECK(index >= 0 && index < size(), "mixture: sample ", index, " of ", size());
  const auto number = static_cast<std::size_t>(std::ranges::upper_bound(first_, index) - first_.begin() - 1);
  return {components_[number], index - first_[number]};
}

std::vector<std::string> Mixture::captions(std::int64_t index) const {
  const auto& [component, place] = place_of(index);
  return read_labeled(component.label, [&] { return component.source->captions(place); });
}

std::int64_t Mixture::caption_count(std::int64_t index) const {
  const auto& [component, place] = place_of(index);
  return component.source->caption_count(place);
}

bool Mixture::lacks_caption(std::int64_t index) const {
  const auto& [component, place] = place_of(index);
  return component.source->lacks_caption(place);
}

// The samples of a source are spread over those of the others.
std::int64_t Mixture::read_ahead() const {
  double out = 0;
  for (const Component& component : components_)
    out = std::max(out, static_cast<double>(component.source->read_ahead()) * static_cast<double>(size()) /
                            static_cast<double>(std::max<std::int64_t>(1, component.source->size())));
  return static_cast<std::int64_t>(out);
}

void Mixture::will_read(std::int64_t index) const {
  const auto& [component, place] = place_of(index);
  component.source->will_read(place);
}

std::vector<std::uint64_t> Mixture::image_ids() const {
  std::vector<std::uint64_t> out;
  for (std::size_t i = 0; i < components_.size(); ++i) {
    std::ranges::copy(components_[i].source->image_ids(), std::back_inserter(out));
    out.resize(static_cast<std::size_t>(first_[i + 1]));  // 0, nothing known, for the samples of other sources
  }
  return out;
}

std::string Mixture::name_of(std::int64_t index) const {
  const auto& [component, place] = place_of(index);
  return component.label + ": " + component.source->name_of(place);
}

Sample Mixture::get(std::int64_t index) const {
  const auto& [component, place] = place_of(index);
  Sample sample = read_labeled(component.label, [&] { return component.source->get(place); });
  sample.key = component.label + ":" + sample.key;
  if (!sample.no_image.empty()) sample.no_image = concat(component.label, ": ", sample.no_image);
  if (same_classes_) return sample;
  sample.label = -1;
  sample.mask.clear();
  for (ObjectAnnotation& object : sample.objects) object.label = -1;
  return sample;
}

Mixing Mixture::mixing() const {
  Mixing out{mode_, {}};
  for (const Component& component : components_)
    out.components.push_back({component.label, concat("source ", component.label, " (", component.source->describe(), ")"),
                              first_[out.components.size()], component.source->size(), component.weight, component.source.get()});
  return out;
}

std::string Mixture::describe() const {
  std::string list;
  for (const Component& component : components_) {
    list += concat(list.empty() ? "" : "; ", component.label, ": ", component.source->describe());
    if (mode_ == MixtureMode::weighted) list += concat(" x ", component.weight);
  }
  return concat("mixture (", kModeNames[static_cast<std::size_t>(mode_)], ") of {", list, "}");
}

std::shared_ptr<Mixture> make_mixture(const MixtureSettings& settings) {
  std::vector<Mixture::Component> components;
  for (std::size_t i = 0; i < settings.sources.size(); ++i) {
    const MixtureComponentSettings& component = settings.sources[i];
    const std::shared_ptr<const Source> source = sources().make(component.source, concat("sources[", i, "].source"));
    if (!std::holds_alternative<const IndexedSource*>(source->kind()))
      user_error("mixture: source ", component.label_or_name(), " (", source->describe(),
                 ") is a stream, and streams cannot be mixed: use local, uncompressed tar files");
    components.push_back({component.label_or_name(), indexed(source), component.weight});
  }
  return std::make_shared<Mixture>(mode_of(settings.mode), std::move(components));
}

}  // namespace tessera
