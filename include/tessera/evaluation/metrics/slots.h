#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace tessera::metrics {

/// The embeddings that chosen slots make (concatenated_unit_slots): the product of two is the mean cosine of their slots.
/// slots [B, L, V] floating; chosen [S] int64 in 0..L-1, undefined: all; returns [B, S*V] double. Differentiable.
at::Tensor slot_embeddings(const at::Tensor& slots, const at::Tensor& chosen = {});

/// The slots of classes: the mean of their prompts' slots, each of length 1 before.
/// prompt_slots [C, T, L, V] floating, T prompts of each class; returns [C, L, V] double, as long as the mean is.
at::Tensor class_slots(const at::Tensor& prompt_slots);

/// Scores each slot alone by zero-shot classification, batch by batch: its cosine with the same slot of each class
/// decides, the lower class of equals. Holds a count for each slot and nothing of the pictures.
class SlotMeter {
 public:
  /// class_slots() of the classes, [C, L, V].
  explicit SlotMeter(const at::Tensor& class_slots);
  /// image_slots [B, L, V] floating; labels [B] int64 (-1: left out). Throws c10::Error for shapes that do not match and
  /// for labels out of range.
  void add(const at::Tensor& image_slots, const at::Tensor& labels);
  /// Share of labeled pictures that each slot classifies right, [L] double; 0 where there is none.
  at::Tensor accuracy() const;

 private:
  at::Tensor classes_;  // [L, V, C], length 1 along V
  at::Tensor right_;    // [L] int64
  std::int64_t labeled_ = 0;
};

/// The `top` slots of greatest accuracy, best first, the lower slot of equals before the higher: [top] int64.
/// accuracy [L]; top in 1..L.
at::Tensor best_slots(const at::Tensor& accuracy, std::int64_t top);

}  // namespace tessera::metrics
