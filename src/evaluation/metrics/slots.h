#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace tessera::metrics {

/// Returns embeddings made from the chosen slots (concatenated_unit_slots), double [B, S*V]. The dot product of two embeddings is
/// the mean cosine of their slots. Differentiable. slots: floating-point [B, L, V]. chosen: int64 [S] in 0..L-1; undefined for all
/// slots.
at::Tensor slot_embeddings(const at::Tensor& slots, const at::Tensor& chosen = {});

/// Returns the slots of classes, double [C, L, V]. A class's slot is the mean of the unit slots of its prompts, and is not
/// normalized again. prompt_slots: floating-point [C, T, L, V], with T prompts per class.
at::Tensor class_slots(const at::Tensor& prompt_slots);

/// Scores each slot separately by zero-shot classification, batch by batch. Slot l of an image predicts the class whose slot l has the
/// greatest cosine with the image's slot l; at ties, the class with the lower index. Stores one count per slot.
class SlotMeter {
 public:
  /// `class_slots` is the result of class_slots(), [C, L, V].
  explicit SlotMeter(const at::Tensor& class_slots);
  /// Adds a batch. image_slots: floating-point [B, L, V]. labels: int64 [B]; images with the label -1 are skipped. Throws
  /// c10::Error if shapes do not match or labels are out of range.
  void add(const at::Tensor& image_slots, const at::Tensor& labels);
  /// Returns, for each slot, the share of labeled images that it classifies correctly: double [L], 0 if there are no images.
  at::Tensor accuracy() const;

 private:
  at::Tensor classes_;  // [L, V, C], with L2 norm 1 along V
  at::Tensor right_;    // [L] int64
  std::int64_t labeled_ = 0;
};

/// Returns the `top` slots with the greatest accuracy, int64 [top], best first; at ties the lower slot comes first. accuracy: [L].
/// `top` must be in 1..L.
at::Tensor best_slots(const at::Tensor& accuracy, std::int64_t top);

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
