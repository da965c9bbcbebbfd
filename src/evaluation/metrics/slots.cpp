#include "src/evaluation/metrics/cosine.h"
#include "src/evaluation/metrics/slots.h"
#include "src/models/readouts/sparo.h"

namespace tessera::metrics {

at::Tensor slot_embeddings(const at::Tensor& slots, const at::Tensor& chosen) {
  TORCH_CHECK(slots.dim() == 3, "slot_embeddings: slots must be [B, L, V], got ", slots.sizes());
  const at::Tensor exact = slots.to(at::kDouble);
  return concatenated_unit_slots(chosen.defined() ? exact.index_select(1, chosen.to(slots.device())) : exact);
}

at::Tensor class_slots(const at::Tensor& prompt_slots) {
  TORCH_CHECK(prompt_slots.dim() == 4, "class_slots: prompt_slots must be [C, T, L, V], got ", prompt_slots.sizes());
  return unit_rows(prompt_slots).mean(1);
}

SlotMeter::SlotMeter(const at::Tensor& class_slots) {
  TORCH_CHECK(class_slots.dim() == 3 && class_slots.size(0) > 0, "SlotMeter: class_slots must be [C, L, V], got ",
              class_slots.sizes());
  classes_ = unit_rows(class_slots).permute({1, 2, 0}).contiguous();
  right_ = at::zeros({class_slots.size(1)}, class_slots.options().dtype(at::kLong));
}

void SlotMeter::add(const at::Tensor& image_slots, const at::Tensor& labels) {
  TORCH_CHECK(
      image_slots.dim() == 3 && image_slots.size(1) == classes_.size(0) && image_slots.size(2) == classes_.size(1),
      "SlotMeter: image_slots must be [B, ", classes_.size(0), ", ", classes_.size(1), "], got ", image_slots.sizes());
  TORCH_CHECK(labels.dim() == 1 && labels.size(0) == image_slots.size(0), "SlotMeter: labels must be [",
              image_slots.size(0), "], got ", labels.sizes());
  const at::Tensor truth = labels.to(classes_.device(), at::kLong);
  TORCH_CHECK(truth.numel() == 0 || truth.max().item<std::int64_t>() < classes_.size(2),
              "SlotMeter: labels must lie below ", classes_.size(2));
  const at::Tensor cosines = at::bmm(unit_rows(image_slots).transpose(0, 1), classes_);  // [L, B, C]
  // A slot with NaN values matches no class.
  const at::Tensor found = at::where(cosines.isnan().any(2), -2, at::nan_to_num(cosines).argmax(2));
  right_ += found.eq(truth.unsqueeze(0)).sum(1);
  labeled_ += truth.ge(0).sum().item<std::int64_t>();
}

at::Tensor SlotMeter::accuracy() const {
  return right_.to(at::kDouble) / static_cast<double>(std::max<std::int64_t>(1, labeled_));
}

at::Tensor best_slots(const at::Tensor& accuracy, std::int64_t top) {
  TORCH_CHECK(accuracy.dim() == 1 && top >= 1 && top <= accuracy.size(0), "best_slots: top must lie in 1..",
              accuracy.numel(), ", got ", top);
  return best_first(accuracy, top);
}

}  // namespace tessera::metrics
