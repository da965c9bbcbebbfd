#pragma once

#include <optional>

#include <tessera/objectives/objective.h>

namespace tessera {

/// What the setting `mask_duplicates` of the contrastive objectives does.
inline constexpr const char* kMaskDuplicatesHelp =
    "pairs of the batch that have this pair's picture or caption are left out of its sum instead of being counted as "
    "negatives";

/// An objective with a learned temperature: parameter `logit_scale`, the log of 1/temperature, starts at log(1/0.07)
/// (CLIP) where nothing else is said, and is kept in [0, log 100] after each optimizer step; the forward uses
/// exp(logit_scale) unclamped.
class ContrastiveObjective : public Objective {
 public:
  explicit ContrastiveObjective(double logit_scale = 2.659260036932778);  // log(1/0.07)
  void after_step(const StepContext& done) override;
  /// Uses another's parameter in place of the own one, which is given up (weighted_sum with shared_logit_scale).
  virtual void share_logit_scale(const at::Tensor& logit_scale);

 protected:
  /// exp(logit_scale), a scalar in the given type.
  at::Tensor scale(at::ScalarType dtype) const;
  /// 1/temperature: of a fixed one, or the learned one for null.
  at::Tensor inverse_temperature(std::optional<double> temperature, at::ScalarType dtype) const;

  at::Tensor logit_scale_;
};

}  // namespace tessera
