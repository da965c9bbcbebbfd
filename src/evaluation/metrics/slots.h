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

}  // namespace tessera::metrics
