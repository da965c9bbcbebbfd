#include "src/objectives/common/contrast.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <tessera/ops/numeric.h>

namespace tessera {
namespace {

// Cross-entropies are taken of logits relative to the right pair's, log sum exp(s (A_ij - A_ii)): equal in value, and
// the gradient of the scale does not cancel between large numbers.

// [B, B] cosines in tiles of rows: both log-sum-exps in one pass, and the softmaxes computed again in the backward
// pass.
class TiledInfoNce : public torch::autograd::Function<TiledInfoNce> {
 public:
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* ctx, const at::Tensor& image,
                                                const at::Tensor& text, const at::Tensor& scale, std::int64_t chunk) {
    const NoAutocast no_autocast;
    const std::int64_t batch = image.size(0);
    const at::Tensor right = (image * text).sum(1);  // [B], the right pairs' cosines
    at::Tensor rows = at::empty({batch}, image.options());
    at::Tensor columns;
    for (std::int64_t start = 0; start < batch; start += chunk) {
      const std::int64_t count = std::min(chunk, batch - start);
      const at::Tensor cosines = at::matmul(image.narrow(0, start, count), text.t());  // [count, B]
      rows.narrow(0, start, count).copy_(((cosines - right.narrow(0, start, count).unsqueeze(1)) * scale).logsumexp(1));
      const at::Tensor partial = ((cosines - right) * scale).logsumexp(0);
      columns = columns.defined() ? at::logaddexp(columns, partial) : partial;
    }
    ctx->save_for_backward({image, text, scale, right, rows, columns});
    ctx->saved_data["chunk"] = chunk;
    return {rows.mean(), columns.mean()};
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list gradients) {
    TORCH_CHECK(!at::GradMode::is_enabled(), "the tiled contrastive loss has no second derivatives");
    const NoAutocast no_autocast;
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &image = saved[0], &text = saved[1], &scale = saved[2], &right = saved[3];
    const std::int64_t batch = image.size(0);
    const std::int64_t chunk = ctx->saved_data["chunk"].toInt();
    const at::Tensor row_weight = gradients[0] / static_cast<double>(batch);
    const at::Tensor column_weight = gradients[1] / static_cast<double>(batch);

    at::Tensor image_gradient = at::empty_like(image);
    at::Tensor text_gradient = at::zeros_like(text);
    at::Tensor scale_gradient = at::zeros_like(scale);
    for (std::int64_t start = 0; start < batch; start += chunk) {
      const std::int64_t count = std::min(chunk, batch - start);
      const at::Tensor cosines = at::matmul(image.narrow(0, start, count), text.t());
      // One direction's share of the gradient of the cosines over the scale: weighted softmax of logits relative to the
      // right pair.
      const auto share = [&](const at::Tensor& relative, const at::Tensor& normaliser, const at::Tensor& weight) {
        const at::Tensor softmax = (relative * scale).sub_(normaliser).exp_().mul_(weight);
        scale_gradient.add_((softmax * relative).sum());
        return softmax;
      };
      at::Tensor gradient = share(cosines - right.narrow(0, start, count).unsqueeze(1),
                                  saved[4].narrow(0, start, count).unsqueeze(1), row_weight);
      gradient.add_(share(cosines - right, saved[5], column_weight));
      gradient.diagonal(start).sub_(row_weight + column_weight);
      gradient.mul_(scale);
      image_gradient.narrow(0, start, count).copy_(at::matmul(gradient, text));
      text_gradient.addmm_(gradient.t(), image.narrow(0, start, count));
    }
    return {image_gradient, text_gradient, scale_gradient, {}};
  }
};

}  // namespace

Contrast info_nce(const at::Tensor& i2t, const at::Tensor& t2i, const at::Tensor& scale) {
  const at::Tensor loss_i2t = ((i2t - i2t.diagonal().unsqueeze(1)) * scale).logsumexp(1).mean();
  const at::Tensor loss_t2i = ((t2i - t2i.diagonal()) * scale).logsumexp(0).mean();
  return {(loss_i2t + loss_t2i) / 2, loss_i2t, loss_t2i};
}

Contrast global_contrast(const at::Tensor& image_global, const at::Tensor& text_global, const at::Tensor& scale,
                         std::optional<std::int64_t> chunk) {
  const at::Tensor image = unit_rows(image_global);
  const at::Tensor text = unit_rows(text_global);
  if (!chunk) {
    const at::Tensor cosines = at::matmul(image, text.t());  // [B, B]
    return info_nce(cosines, cosines, scale);
  }
  const auto losses = TiledInfoNce::apply(image, text, scale, *chunk);
  return {(losses[0] + losses[1]) / 2, losses[0], losses[1]};
}

at::Tensor token_contrast(const at::Tensor& queries, const at::Tensor& keys, const at::Tensor& mask,
                          const at::Tensor& scale) {
  const at::Tensor products = at::matmul(queries, keys.mT());  // [B, N, N]
  const at::Tensor right = products.diagonal(0, 1, 2);         // [B, N]
  at::Tensor rows = (products - right.unsqueeze(2)) * scale;
  at::Tensor columns = (products - right.unsqueeze(1)) * scale;
  if (!mask.defined()) return (rows.logsumexp(2) + columns.logsumexp(1)) / 2;
  const double nothing = lowest(products.scalar_type());
  rows = rows.masked_fill(~mask.unsqueeze(1), nothing);
  columns = columns.masked_fill(~mask.unsqueeze(2), nothing);
  return ((rows.logsumexp(2) + columns.logsumexp(1)) / 2).masked_fill(~mask, 0.0);
}

}  // namespace tessera
