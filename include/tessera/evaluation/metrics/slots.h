#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace tessera::metrics {

/// Returns embeddings made from the chosen slots (concatenated_unit_slots); the dot product of two is the mean cosine of their
/// slots. slots [B, L, V] floating; chosen [S] int64 in 0..L-1, or undefined for all; returns [B, S*V] double. Differentiable.
at::Tensor slot_embeddings(const at::Tensor& slots, const at::Tensor& chosen = {});

/// Returns the slots of classes: the mean over the prompts of each unit slot, not normalized again.
/// prompt_slots [C, T, L, V] floating, T prompts per class; returns [C, L, V] double.
at::Tensor class_slots(const at::Tensor& prompt_slots);

/// Scores each slot on its own by zero-shot classification, batch by batch: the class whose same slot has the greatest cosine
/// is predicted, the lower one at ties. Holds one count per slot.
class SlotMeter {
 public:
  /// class_slots() of the classes, [C, L, V].
  explicit SlotMeter(const at::Tensor& class_slots);
  /// image_slots [B, L, V] floating; labels [B] int64 (-1 is skipped). Throws c10::Error for shapes that do not match and for
  /// labels out of range.
  void add(const at::Tensor& image_slots, const at::Tensor& labels);
  /// Returns the share of labeled images that each slot classifies correctly, [L] double; 0 if there are none.
  at::Tensor accuracy() const;

 private:
  at::Tensor classes_;  // [L, V, C], length 1 along V
  at::Tensor right_;    // [L] int64
  std::int64_t labeled_ = 0;
};

/// Returns the `top` slots of greatest accuracy, best first, the lower slot first at ties: [top] int64. accuracy [L]; top in
/// 1..L.
at::Tensor best_slots(const at::Tensor& accuracy, std::int64_t top);

}  // namespace tessera::metrics
