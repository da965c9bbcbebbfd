#pragma once

#include <initializer_list>
#include <map>
#include <optional>
#include <string>

#include <tessera/objectives/objective.h>

namespace tessera {

/// Settings that all objectives on pairs of an image view and a text view have in common; their keys stand among the
/// objective's own.
struct PairSettings {
  std::string image_view = "image";
  std::string text_view = "caption";
  bool skip_absent = false;
  bool mask_duplicates = false;
  std::optional<std::int64_t> chunk;

  /// The two views, of which the objective wants `image` and `text`, and what follows from the other settings.
  Needs needs(ViewNeeds image = {}, ViewNeeds text = {}) const;
};

template <class Visitor>
void fields(Visitor& v, PairSettings& s) {
  v("image_view", s.image_view, "the image view of each pair");
  v("text_view", s.text_view, "the text view of each pair");
  v("skip_absent", s.skip_absent,
    "samples may lack one of the two views: such a pair is no anchor, no negative and not counted in means; false: "
    "samples without both are not loaded");
  v("mask_duplicates", s.mask_duplicates,
    "pairs of the batch that have this pair's picture or caption are left out of its sum instead of being counted as "
    "negatives");
  v("chunk", s.chunk,
    "pairs in a tile: similarities are made tile by tile, forward and again backward, to save memory; null: all at "
    "once",
    config::at_least(1));
}

/// Settings of objectives with InfoNCE terms.
struct ContrastSettings : PairSettings {
  double label_smoothing = 0;
};

template <class Visitor>
void fields(Visitor& v, ContrastSettings& s) {
  fields(v, static_cast<PairSettings&>(s));
  v("label_smoothing", s.label_smoothing,
    "share of each pair's target that its negatives get, in equal parts, in contrasts over the batch",
    config::in_half_open(0.0, 1.0));
}

/// Where `logit_scale` starts if nothing else is said: log(1/0.07) (CLIP).
inline constexpr double kInitialLogitScale = 2.659260036932778;

/// Objective::chance_levels of softmax contrasts over the batch, by the names of their terms.
std::map<std::string, double> contrast_chance(std::initializer_list<const char*> terms, std::int64_t pairs);

/// An objective with a learned temperature: parameter `logit_scale`, the log of 1/temperature, is kept in [0, log 100]
/// after each optimizer step; the forward uses exp(logit_scale) unclamped. Where the context has a logit_scale, that
/// one is used, and this objective registers none. One that is not `learned` has neither, and no scale().
class ContrastiveObjective : public Objective {
 public:
  explicit ContrastiveObjective(const ObjectiveContext& context, double initial_logit_scale = kInitialLogitScale,
                                bool learned = true);
  void after_step(const StepContext& done) override;

 protected:
  /// The parameter itself, for parts that share it.
  const at::Tensor& logit_scale() const { return logit_scale_; }
  /// exp(logit_scale), a scalar in the given type.
  at::Tensor scale(at::ScalarType dtype) const;
  /// 1/temperature: of a fixed one, or the learned one for null.
  at::Tensor inverse_temperature(std::optional<double> temperature, at::ScalarType dtype) const;

 private:
  at::Tensor logit_scale_;
};

}  // namespace tessera
