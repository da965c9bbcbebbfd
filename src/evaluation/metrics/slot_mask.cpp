#include <cmath>

#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include "src/evaluation/metrics/cosine.h"
#include "src/evaluation/metrics/slot_mask.h"

namespace tessera::metrics {
namespace {

constexpr double kLeastScale = 100;

}  // namespace

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
