#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include <tessera/ops/numeric.h>
#include <tessera/ops/sparsify_group.h>

namespace tessera {
namespace {

// Rows whose similarities differ by less than this share of their size have no meaningful ranking of patches.
constexpr double kFlat = 1e-6;

struct Inputs {
  at::Tensor text;   // [B, L, D], 0 at padding
  at::Tensor image;  // [B, P, D]
  at::Tensor mask;   // [B, L, 1]
};

Inputs checked(const at::Tensor& text_tokens, const at::Tensor& image_tokens, const at::Tensor& text_mask) {
  TORCH_CHECK(text_tokens.dim() == 3, "sparsify_group: text_tokens must be [B, L, D], got ", text_tokens.sizes());
  const std::int64_t batch = text_tokens.size(0);
  TORCH_CHECK(image_tokens.dim() == 3 && image_tokens.size(0) == batch && image_tokens.size(2) == text_tokens.size(2),
              "sparsify_group: image_tokens must be [B, P, D] = [", batch, ", P, ", text_tokens.size(2), "], got ",
              image_tokens.sizes());
  TORCH_CHECK(image_tokens.size(1) > 0, "sparsify_group: image_tokens must hold at least one patch, got ",
              image_tokens.sizes());
  TORCH_CHECK(text_mask.dim() == 2 && text_mask.size(0) == batch && text_mask.size(1) == text_tokens.size(1),
              "sparsify_group: text_mask must be [B, L] = [", batch, ", ", text_tokens.size(1), "], got ",
              text_mask.sizes());
  TORCH_CHECK(text_mask.scalar_type() == at::kBool, "sparsify_group: text_mask must be bool, got ",
              text_mask.scalar_type());
  TORCH_CHECK(image_tokens.device() == text_tokens.device() && text_mask.device() == text_tokens.device(),
              "sparsify_group: text_tokens, image_tokens and text_mask must be on one device, got ",
              text_tokens.device(), ", ", image_tokens.device(), " and ", text_mask.device());
  const at::ScalarType dtype =
      text_tokens.scalar_type() == at::kDouble || image_tokens.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor mask = text_mask.unsqueeze(-1);
  const at::Tensor text = text_tokens.to(dtype);
  return {at::where(mask, text, at::zeros({}, text.options())), image_tokens.to(dtype), mask};
}

at::Tensor minmax_weights(const at::Tensor& similarity, double threshold) {
  const at::Tensor low = similarity.amin(-1, /*keepdim=*/true);
  const at::Tensor high = similarity.amax(-1, /*keepdim=*/true);
  const at::Tensor range = high - low;
  const at::Tensor flat = range <= kFlat * at::maximum(low.abs(), high.abs());  // [B, L, 1]
  // The flat rows get a harmless range, so that no NaN enters the graph, and constant weights at the end.
  const at::Tensor z = (similarity - low) / range.masked_fill(flat, 1.0);
  const at::Tensor kept = z.masked_fill(z < threshold, 0.0);
  const at::Tensor weights = kept / kept.sum(-1, /*keepdim=*/true).masked_fill(flat, 1.0);
  return weights.masked_fill(flat, 1.0 / static_cast<double>(similarity.size(-1)));
}

at::Tensor weights_of(const Inputs& inputs, const SparsifySettings& settings) {
  const at::Tensor similarity = at::matmul(inputs.text, inputs.image.mT());  // [B, L, P]
  const at::Tensor weights = settings.weights == "softmax"
                                 ? (similarity / settings.softmax_temperature).softmax(-1)
                                 : minmax_weights(similarity, settings.threshold_for(similarity.size(-1)));
  return weights.masked_fill(~inputs.mask, 0.0);
}

}  // namespace

at::Tensor sparsify_group(const at::Tensor& text_tokens, const at::Tensor& image_tokens, const at::Tensor& text_mask,
                          const SparsifySettings& settings) {
  const NoAutocast no_autocast;
  const Inputs inputs = checked(text_tokens, image_tokens, text_mask);
  return at::matmul(weights_of(inputs, settings), inputs.image);
}

at::Tensor sparsify_weights(const at::Tensor& text_tokens, const at::Tensor& image_tokens, const at::Tensor& text_mask,
                            const SparsifySettings& settings) {
  const NoAutocast no_autocast;
  const at::NoGradGuard no_grad;
  return weights_of(checked(text_tokens, image_tokens, text_mask), settings);
}

}  // namespace tessera
