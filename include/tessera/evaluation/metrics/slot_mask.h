#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace tessera::metrics {

/// The sums from which a mask over P equal parts of an embedding is scored on pairs of a right and a wrong caption. A mask
/// scales the parts, so masked cosines depend only on one sum per part.
struct MaskPairs {
  at::Tensor positive;  // [N, P] double, each part's dot product with the unit embedding of the right caption
  at::Tensor negative;  // [N, P] the same with the wrong caption
  at::Tensor squares;   // [N, P] each part's squared length
};

/// image, positive, negative [N, M] floating. `parts` divides M: the number of slots, or M for a mask over dimensions. Throws
/// c10::Error if the shapes do not match.
MaskPairs mask_pairs(const at::Tensor& image, const at::Tensor& positive, const at::Tensor& negative,
                     std::int64_t parts);

/// A mask of image embeddings with its trained parameters (Vani et al. 2024, 5.2 and 0.C.1).
struct SlotMask {
  at::Tensor theta;  // [P] floating; at 0 all parts weigh the same
  at::Tensor alpha;  // []

  /// Returns max(100, exp(alpha)), the factor of cosines; alpha has a gradient only if exp(alpha) is greater.
  at::Tensor scale() const;
  /// Returns the factor of each part, sigmoid(scale * theta / 4), [P] double.
  at::Tensor weights() const;
  /// Returns the initial mask in float64: theta = 0, and alpha = ln(1 / 0.07), CLIP's initial temperature.
  static SlotMask start(std::int64_t parts);
};

struct SlotMaskScores {
  at::Tensor logits;  // [N, 2] double, scale * cosine of the masked image with the right and with the wrong caption
  at::Tensor loss;    // [] double, mean cross-entropy
};

/// Scores the pairs; differentiable in theta and alpha. Throws c10::Error if the mask and the pairs differ in their number of
/// parts.
SlotMaskScores slot_mask_scores(const SlotMask& mask, const MaskPairs& pairs);

struct SlotMaskTraining {
  at::Tensor losses;  // [steps] double, before each update
  at::Tensor theta;   // [steps, P] double, after each update
  at::Tensor alpha;   // [steps], after each update
  SlotMask best;      // the mask with the most pairs right among `start` and all updates; the earlier one at ties
};

/// Trains by SGD, each step over all pairs: buffer = momentum * buffer + gradient, parameter -= lr * buffer, without weight
/// decay.
SlotMaskTraining train_slot_mask(const SlotMask& start, const MaskPairs& pairs, std::int64_t steps, double lr = 0.02,
                                 double momentum = 0.9);

}  // namespace tessera::metrics
