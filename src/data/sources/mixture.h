#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <tessera/data/source.h>

namespace tessera {

/// The settings of a source inside those of another source. Reading them fills in all defaults.
struct NestedSourceSettings : config::ModuleSettings {};

namespace config {
template <>
struct Value<NestedSourceSettings> {
  static NestedSourceSettings read(const Node& node, const std::string& path, const NestedSourceSettings&);
  static Node dump(const NestedSourceSettings& value) { return Value<ModuleSettings>::dump(value); }
  static std::string type() { return Value<ModuleSettings>::type(); }
};
}  // namespace config

/// One data set of a mixture.
struct MixtureComponentSettings {
  std::string label;
  double weight = 1.0;
  NestedSourceSettings source;

  const std::string& label_or_name() const { return label.empty() ? source.name : label; }
};

template <class Visitor>
void fields(Visitor& v, MixtureComponentSettings& s) {
  v("label", s.label, "its name in messages, keys and metrics; must be unique; empty: the source's name");
  v("weight", s.weight, "how often an epoch holds each of its samples, with mode weighted",
    config::in_range(1e-6, 1e3));
  v("source", s.source, "the data set");
}

struct MixtureSettings {
  std::string mode = "concat";
  std::vector<MixtureComponentSettings> sources;
};

template <class Visitor>
void fields(Visitor& v, MixtureSettings& s) {
  v("mode", s.mode,
    "concat: one big set; weighted: the same, but an epoch holds each sample of a source `weight` times; sequential: "
    "one source after the other, in a different order each epoch; accumulate: an update sums the gradients of one batch from "
    "each source",
    config::one_of({"accumulate", "sequential", "concat", "weighted"}));
  v("sources", s.sources,
    "[{label: cc3m, weight: 2, source: {name: webdataset, path: ...}}, ...]; label and weight may be left out");
}
std::optional<config::Problem> validate(const MixtureSettings& settings);

/// Several sources as one. In the mixture's own order, which evaluation uses, the sources come one after another; in training the sampler
/// orders the samples as the mode requires. Keys and messages of samples start with "LABEL:". Labels, masks and objects keep their classes
/// only if all sources have the same class names.
class Mixture : public IndexedSource {
 public:
  struct Component {
    std::string label;
    std::shared_ptr<const IndexedSource> source;
    double weight = 1.0;
  };

  Mixture(MixtureMode mode, std::vector<Component> components);

  std::int64_t size() const override { return first_.back(); }
  Sample get(std::int64_t index) const override;
  std::vector<std::string> class_names() const override { return class_names_; }
  std::int64_t background_class() const override { return background_class_; }
  /// Returns the smallest value of all sources. Its depth images hold the largest depths, so no source's depths exceed their 16 bits.
  double depth_units() const override;
  Mixing mixing() const override;
  std::vector<std::string> captions(std::int64_t index) const override;
  std::int64_t caption_count(std::int64_t index) const override;
  bool lacks_caption(std::int64_t index) const override;
  std::int64_t read_ahead() const override;
  void will_read(std::int64_t index) const override;
  std::vector<std::uint64_t> image_ids() const override;
  std::string name_of(std::int64_t index) const override;
  std::string describe() const override;

  const std::vector<Component>& components() const { return components_; }

 private:
  void find_classes();
  /// Returns the component of a sample, and the sample's index in it.
  std::pair<const Component&, std::int64_t> place_of(std::int64_t index) const;

  MixtureMode mode_;
  std::vector<Component> components_;
  std::vector<std::int64_t> first_;  // index of each component's first sample, then the total number of samples
  bool same_classes_ = false;
  std::vector<std::string> class_names_;
  std::int64_t background_class_ = -1;
};

/// Throws UserError if one of the sources cannot be opened or is a stream.
std::shared_ptr<Mixture> make_mixture(const MixtureSettings& settings);

}  // namespace tessera
