#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace tessera::metrics {

/// What a mask over P equal parts of an embedding needs of pairs of a right and a wrong caption: it scales the parts,
/// so that a masked cosine follows from sums over each part alone.
struct MaskPairs {
  at::Tensor positive;  // [N, P] double, each part's product with the unit embedding of the right caption
  at::Tensor negative;  // [N, P] of the wrong one
  at::Tensor squares;   // [N, P] each part's squared length
};

/// image, positive, negative [N, M] floating; `parts` divides M: as many as slots, or M for a mask of dimensions.
/// Throws c10::Error for shapes that do not match.
MaskPairs mask_pairs(const at::Tensor& image, const at::Tensor& positive, const at::Tensor& negative,
                     std::int64_t parts);

/// A trained mask of image embeddings (Vani et al. 2024, 5.2 and 0.C.1).
struct SlotMask {
  at::Tensor theta;  // [P] floating; 0: nothing is masked
  at::Tensor alpha;  // []

  /// max(100, exp(alpha)), the factor of cosines; alpha has a gradient only where exp(alpha) is the greater.
  at::Tensor scale() const;
  /// What each part is multiplied with, sigmoid(scale * theta / 4), [P] double.
  at::Tensor weights() const;
  /// theta = 0 for so many parts and alpha = ln(1 / 0.07), where CLIP's temperature begins; float64.
  static SlotMask start(std::int64_t parts);
};

struct SlotMaskScores {
  at::Tensor logits;  // [N, 2] double, scale * cosine of the masked picture with the right and with the wrong caption
  at::Tensor loss;    // [] double, mean cross-entropy
};

/// Differentiable in theta and alpha. Throws c10::Error if the mask has another number of parts than the pairs.
SlotMaskScores slot_mask_scores(const SlotMask& mask, const MaskPairs& pairs);

struct SlotMaskTraining {
  at::Tensor losses;  // [steps] double, each before its update
  at::Tensor theta;   // [steps, P] double, after it
  at::Tensor alpha;   // [steps]
  SlotMask best;      // of `start` and all updates, that of most pairs right; the earlier one of equals
};

/// SGD over all pairs at once: buffer = momentum * buffer + gradient, parameter -= lr * buffer, without weight decay.
SlotMaskTraining train_slot_mask(const SlotMask& start, const MaskPairs& pairs, std::int64_t steps, double lr = 0.02,
                                 double momentum = 0.9);

}  // namespace tessera::metrics
