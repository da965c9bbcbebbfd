#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace tessera::metrics {

/// The sums from which a mask is scored. A mask scales each of P equal parts of an image embedding. Its score compares two cosines: of the
/// masked embedding with a right caption and with a wrong one. Both cosines can be computed from these sums alone.
struct MaskPairs {
  at::Tensor positive;  // [N, P] double, each part's dot product with the unit embedding of the right caption
  at::Tensor negative;  // [N, P] double, each part's dot product with the unit embedding of the wrong caption
  at::Tensor squares;   // [N, P], each part's squared length
};

/// Computes the sums. image, positive and negative: floating-point embeddings [N, M]. `parts` must divide M; it is the number of
/// slots, or M for a mask over dimensions. Throws c10::Error if the shapes do not match.
MaskPairs mask_pairs(const at::Tensor& image, const at::Tensor& positive, const at::Tensor& negative,
                     std::int64_t parts);

/// A mask of image embeddings with its trained parameters (Vani et al. 2024, 5.2 and 0.C.1).
struct SlotMask {
  at::Tensor theta;  // [P] floating-point; at 0 all parts have the same weight
  at::Tensor alpha;  // a scalar

  /// Returns max(100, exp(alpha)), the factor that multiplies cosines. alpha has a gradient only if exp(alpha) is above 100.
  at::Tensor scale() const;
  /// Returns the factor of each part, sigmoid(scale * theta / 4), [P] double.
  at::Tensor weights() const;
  /// Returns the initial mask in float64: theta = 0, and alpha = ln(1 / 0.07), CLIP's initial temperature.
  static SlotMask start(std::int64_t parts);
};

struct SlotMaskScores {
  at::Tensor logits;  // [N, 2] double, scale * cosine of the masked image with the right and the wrong caption
  at::Tensor loss;    // a double scalar, mean cross-entropy
};

/// Scores the pairs. The result is differentiable in theta and alpha. Throws c10::Error if mask and pairs have different numbers of
/// parts.
SlotMaskScores slot_mask_scores(const SlotMask& mask, const MaskPairs& pairs);

struct SlotMaskTraining {
  at::Tensor losses;  // [steps] double, the loss before each update
  at::Tensor theta;   // [steps, P] double, theta after each update
  at::Tensor alpha;   // [steps], alpha after each update
  SlotMask best;      // the mask that gets the most pairs right, among `start` and the masks after each update; at ties the earliest
};

/// Trains a mask by SGD without weight decay. Each step uses all pairs: buffer = momentum * buffer + gradient, parameter -= lr *
/// buffer.
SlotMaskTraining train_slot_mask(const SlotMask& start, const MaskPairs& pairs, std::int64_t steps, double lr = 0.02,
                                 double momentum = 0.9);

}  // namespace tessera::metrics
