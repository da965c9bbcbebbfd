#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <tessera/ops/numeric.h>
#include <tessera/ops/sparsemax.h>

namespace tessera {
namespace {

// Returns the threshold tau [.., 1] of scores [.., C]. Let z_(i) be the i-th largest score. Only the k largest scores
// get a weight above 0, where k is the largest number with 1 + k z_(k) > z_(1) + .. + z_(k).
at::Tensor threshold(const at::Tensor& scores) {
  const at::Tensor sorted = std::get<0>(scores.sort(-1, /*descending=*/true));
  const at::Tensor sums = sorted.cumsum(-1), places = at::arange(1, scores.size(-1) + 1, scores.options());
  const at::Tensor last = ((1 + places * sorted > sums) * places).amax(-1, /*keepdim=*/true);  // k
  // k, the number of positive weights, is at least 1 except if a score is NaN; in that case all weights become NaN.
  return (sums.gather(-1, last.to(at::kLong).sub(1).clamp_min(0)) - 1) / last;
}

class Sparsemax : public torch::autograd::Function<Sparsemax> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& scores) {
    const at::Tensor shifted = scores - scores.amax(-1, /*keepdim=*/true);  // keeps sums accurate for large scores
    const at::Tensor out = (shifted - threshold(shifted)).clamp_min(0);
    ctx->save_for_backward({out > 0});
    return out;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list gradients) {
    const at::Tensor support = ctx->get_saved_variables()[0];
    const at::Tensor kept = gradients[0].masked_fill(support.logical_not(), 0);
    const at::Tensor mean = kept.sum(-1, /*keepdim=*/true) / support.sum(-1, /*keepdim=*/true);
    return {(kept - mean).masked_fill(support.logical_not(), 0)};
  }
};

}  // namespace

at::Tensor sparsemax(const at::Tensor& scores, std::int64_t dim) {
  TORCH_CHECK(scores.dim() > 0 && scores.is_floating_point() && scores.size(dim) > 0,
              "sparsemax: scores must be floating with at least one entry along dimension ", dim, ", got ",
              scores.scalar_type(), " ", scores.sizes());
  const NoAutocast no_autocast;
  return Sparsemax::apply(to_compute(scores).movedim(dim, -1)).movedim(-1, dim);
}

}  // namespace tessera
