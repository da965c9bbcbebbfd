#include <cmath>

#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include "src/evaluation/metrics/cosine.h"
#include "src/evaluation/metrics/slots.h"
#include "src/models/readouts/sparo.h"

namespace tessera::metrics {
namespace {

constexpr double kLeastScale = 100;

}  // namespace

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

MaskPairs mask_pairs(const at::Tensor& image, const at::Tensor& positive, const at::Tensor& negative,
                     std::int64_t parts) {
  TORCH_CHECK(image.dim() == 2 && image.sizes() == positive.sizes() && image.sizes() == negative.sizes(),
              "slot_mask: embeddings must be [N, M], got ", image.sizes(), ", ", positive.sizes(), " and ",
              negative.sizes());
  TORCH_CHECK(parts > 0 && image.size(1) % parts == 0, "slot_mask: ", parts, " parts do not divide embeddings of ",
              image.size(1), " dimensions");
  const at::Tensor exact = image.to(at::kDouble);
  const auto by_part = [&](const at::Tensor& products) { return products.unflatten(1, {parts, -1}).sum(2); };
  return {by_part(exact * unit_rows(positive)), by_part(exact * unit_rows(negative)), by_part(exact.square())};
}

at::Tensor SlotMask::scale() const {
  const at::Tensor trained = alpha.to(at::kDouble).exp();
  return at::where(trained.gt(kLeastScale), trained, kLeastScale);
}

at::Tensor SlotMask::weights() const {
  return at::sigmoid(scale() * theta.to(at::kDouble) / 4);
}

SlotMask SlotMask::start(std::int64_t parts) {
  return {at::zeros({parts}, at::kDouble), at::scalar_tensor(std::log(1 / 0.07), at::kDouble)};
}

SlotMaskScores slot_mask_scores(const SlotMask& mask, const MaskPairs& pairs) {
  TORCH_CHECK(mask.theta.dim() == 1 && mask.theta.size(0) == pairs.squares.size(1), "slot_mask: theta must be [",
              pairs.squares.size(1), "], got ", mask.theta.sizes());
  const at::Tensor weights = mask.weights();
  // The squared length is kept above 0, because the slope of the square root is infinite there.
  const at::Tensor length = pairs.squares.matmul(weights.square()).clamp_min(1e-24).sqrt();  // [N]
  const at::Tensor products = at::stack({pairs.positive.matmul(weights), pairs.negative.matmul(weights)}, 1);
  SlotMaskScores out;
  out.logits = mask.scale() * products / length.unsqueeze(1);
  out.loss = -out.logits.log_softmax(1).select(1, 0).mean();
  return out;
}

SlotMaskTraining train_slot_mask(const SlotMask& start, const MaskPairs& pairs, std::int64_t steps, double lr,
                                 double momentum) {
  TORCH_CHECK(steps > 0, "slot_mask: steps must be positive, got ", steps);
  std::vector<at::Tensor> values = {start.theta.detach().to(at::kDouble), start.alpha.detach().to(at::kDouble)};
  std::vector<at::Tensor> buffers = {at::zeros_like(values[0]), at::zeros_like(values[1])};
  std::vector<at::Tensor> losses, thetas, alphas;
  SlotMaskTraining out;
  double most_right = -1;
  const auto offer = [&](const SlotMask& mask, const at::Tensor& logits) {
    const double right = logits.select(1, 0).gt(logits.select(1, 1)).sum().item<double>();
    if (right > most_right) {
      most_right = right;
      out.best = mask;
    }
  };
  for (std::int64_t step = 0; step < steps; ++step) {
    const c10::AutoGradMode gradients(true);
    const SlotMask mask{values[0].detach().requires_grad_(), values[1].detach().requires_grad_()};
    const SlotMaskScores scores = slot_mask_scores(mask, pairs);
    offer({values[0], values[1]}, scores.logits.detach());
    const auto gradient = torch::autograd::grad({scores.loss}, {mask.theta, mask.alpha});
    losses.push_back(scores.loss.detach());
    for (std::size_t i = 0; i < values.size(); ++i) {
      buffers[i] = momentum * buffers[i] + gradient[i];
      values[i] = (values[i] - lr * buffers[i]).detach();
    }
    thetas.push_back(values[0]);
    alphas.push_back(values[1]);
  }
  const SlotMask last{values[0], values[1]};
  offer(last, slot_mask_scores(last, pairs).logits);
  out.losses = at::stack(losses);
  out.theta = at::stack(thetas);
  out.alpha = at::stack(alphas);
  return out;
}

}  // namespace tessera::metrics
