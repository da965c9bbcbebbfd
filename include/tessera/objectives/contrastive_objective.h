#pragma once

#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <tessera/config/samples_at_a_time.h>
#include <tessera/objectives/objective.h>

namespace tessera {

/// Settings shared by all objectives on pairs of an image view and a text view. Their keys are part of the objective's own
/// settings.
struct PairSettings {
  std::string image_view = "image";
  std::string text_view = "caption";
  bool skip_absent = false;
  bool mask_duplicates = false;
  config::SamplesAtATime chunk;

  /// Returns the needs of the two views. They are the arguments `image` and `text`, plus what the settings in this struct require.
  Needs needs(ViewNeeds image = {}, ViewNeeds text = {}) const;
};

void fields(auto& v, PairSettings& s) {
  v("image_view", s.image_view, "the image view of each pair");
  v("text_view", s.text_view, "the text view of each pair");
  v("skip_absent", s.skip_absent,
    "true: samples that lack one of the two views are loaded, but they are neither anchors nor negatives, and means ignore them; "
    "false: such samples are not loaded");
  v("mask_duplicates", s.mask_duplicates,
    "pairs of the batch that have the same image or the same caption are left out of each other's sums instead of counting as negatives");
  v("chunk", s.chunk,
    "number of pairs per tile: to save memory, similarities are computed tile by tile, and again in the backward pass; auto: trainer "
    "computes them in tiles of 256 pairs if they would take more than a tenth of the device's memory otherwise; null: all at once");
}

/// Settings of objectives with InfoNCE terms.
struct ContrastSettings : PairSettings {
  double label_smoothing = 0;
};

void fields(auto& v, ContrastSettings& s) {
  fields(v, static_cast<PairSettings&>(s));
  v("label_smoothing", s.label_smoothing,
    "share of each pair's target that contrasts over the batch spread evenly over the pair's negatives",
    config::in_half_open(0.0, 1.0));
}

/// The default initial `logit_scale`: log(1/0.07) (CLIP).
inline constexpr double kInitialLogitScale = 2.659260036932778;
/// The largest `logit_scale` after a step: log(100) (CLIP).
inline constexpr double kLargestLogitScale = 4.605170185988092;

/// Returns the logarithm that a stored logit_scale stands for. Some files store the factor itself; a number above 10 is no logarithm of a
/// trained factor.
inline double log_of_scale(double stored) {
  return std::isfinite(stored) && stored > 10 ? std::log(stored) : stored;
}

/// An objective with a learned temperature. The parameter `logit_scale` is the log of 1/temperature; after_step() clamps the parameter to
/// [0, log 100], unless it is frozen. forward() uses exp(logit_scale) without clamping. If the context has a logit_scale, the objective
/// uses it and registers none of its own. If `learned` is false, there is no logit_scale, and scale() must not be called.
class ContrastiveObjective : public Objective {
 public:
  /// `initial_logit_scale` is the initial value that the objective's settings state; without one it is kInitialLogitScale.
  explicit ContrastiveObjective(const ObjectiveContext& context, std::optional<double> initial_logit_scale = {}, bool learned = true);
  void after_step(const StepContext& done) override;
  /// Returns log(pairs) for each of `contrasts_`.
  std::map<std::string, double> chance_levels(std::int64_t pairs) const override;
  /// Returns the initial value that the settings state, for an owner of a shared logit_scale.
  std::optional<double> initial_logit_scale() const { return initial_logit_scale_; }

 protected:
  /// Returns the parameter logit_scale itself, for parts of the objective that share it.
  const at::Tensor& logit_scale() const { return logit_scale_; }
  /// Returns exp(logit_scale) as a scalar of the given type.
  at::Tensor scale(at::ScalarType dtype) const;
  /// Returns 1/temperature for the given fixed temperature, or for the learned one if `temperature` is null.
  at::Tensor inverse_temperature(std::optional<double> temperature, at::ScalarType dtype) const;

  std::vector<std::string> contrasts_;  // names of the loss's terms that are softmax contrasts over the batch

 private:
  std::optional<double> initial_logit_scale_;
  at::Tensor logit_scale_;
};

}  // namespace tessera
