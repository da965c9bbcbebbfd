#pragma once

#include <initializer_list>
#include <map>
#include <optional>
#include <string>

#include <tessera/objectives/objective.h>

namespace tessera {

/// Settings shared by all objectives on pairs of an image view and a text view. Their keys are part of the objective's own
/// settings.
struct PairSettings {
  std::string image_view = "image";
  std::string text_view = "caption";
  bool skip_absent = false;
  bool mask_duplicates = false;
  std::optional<std::int64_t> chunk;

  /// Returns the needs of the two views: `image` and `text`, plus what follows from these settings.
  Needs needs(ViewNeeds image = {}, ViewNeeds text = {}) const;
};

template <class Visitor>
void fields(Visitor& v, PairSettings& s) {
  v("image_view", s.image_view, "the image view of each pair");
  v("text_view", s.text_view, "the text view of each pair");
  v("skip_absent", s.skip_absent,
    "true: samples that lack one of the two views are loaded, but are neither anchors nor negatives and do not count in means; "
    "false: they are not loaded");
  v("mask_duplicates", s.mask_duplicates,
    "pairs of the batch with the same image or caption as this pair are left out of its sum instead of counting as negatives");
  v("chunk", s.chunk,
    "pairs per tile: similarities are computed tile by tile, and again in the backward pass, to save memory; null: all at "
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
    "share of each pair's target that is spread evenly over its negatives, in contrasts over the batch",
    config::in_half_open(0.0, 1.0));
}

/// The default initial `logit_scale`: log(1/0.07) (CLIP).
inline constexpr double kInitialLogitScale = 2.659260036932778;

/// Returns Objective::chance_levels for terms that are softmax contrasts over the batch.
std::map<std::string, double> contrast_chance(std::initializer_list<const char*> terms, std::int64_t pairs);

/// An objective with a learned temperature. The parameter `logit_scale`, the log of 1/temperature, is clamped to [0, log 100]
/// after each optimizer step; forward() uses exp(logit_scale) unclamped. If the context has a logit_scale, the objective uses
/// that one and registers none. With `learned` false there is no logit_scale, and scale() must not be called.
class ContrastiveObjective : public Objective {
 public:
  explicit ContrastiveObjective(const ObjectiveContext& context, double initial_logit_scale = kInitialLogitScale,
                                bool learned = true);
  void after_step(const StepContext& done) override;

 protected:
  /// Returns the parameter itself, for parts that share it.
  const at::Tensor& logit_scale() const { return logit_scale_; }
  /// Returns exp(logit_scale) as a scalar of the given type.
  at::Tensor scale(at::ScalarType dtype) const;
  /// Returns 1/temperature for a fixed temperature, or the learned one for null.
  at::Tensor inverse_temperature(std::optional<double> temperature, at::ScalarType dtype) const;

 private:
  at::Tensor logit_scale_;
};

}  // namespace tessera
