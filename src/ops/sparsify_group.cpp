#include "kernels/sparsify_group/sparsify_group.h"

#include <ATen/ATen.h>

#include "src/ops/dispatch.h"
#include "src/ops/kernel_call.h"
#include "src/ops/operators.h"
#include "src/ops/sparsify_group.h"
#include <tessera/ops/numeric.h>
#include <tessera/ops/sparsify_group.h>

namespace tessera {
namespace {
namespace sparsify_group_parts {

using Threshold = std::optional<double>;

// A row is flat if its similarities differ by at most this share of their magnitude. The order of its patches is then
// only noise.
constexpr double kFlat = 1e-6;

struct Inputs {
  at::Tensor text;   // [B, L, D], 0 at padding
  at::Tensor image;  // [B, P, D]
  at::Tensor mask;   // [B, L, 1]
};

Inputs inputs_in(at::ScalarType dtype, const at::Tensor& text_tokens, const at::Tensor& image_tokens,
                 const at::Tensor& text_mask) {
  const at::Tensor mask = text_mask.unsqueeze(-1);
  const at::Tensor text = text_tokens.to(dtype);
  return {at::where(mask, text, at::zeros({}, text.options())), image_tokens.to(dtype), mask};
}

// Returns the type to compute in. The kernels compute in bfloat16 or float32. float64 stays float64, for gradient
// checks.
at::ScalarType computing_type(at::ScalarType tokens) {
  return tokens == at::kDouble || tokens == at::kBFloat16 ? tokens : at::kFloat;
}

at::Tensor minmax_weights(const at::Tensor& similarity, double threshold) {
  const at::Tensor low = similarity.amin(-1, /*keepdim=*/true);
  const at::Tensor high = similarity.amax(-1, /*keepdim=*/true);
  const at::Tensor range = high - low;
  const at::Tensor flat = range <= kFlat * at::maximum(low.abs(), high.abs());  // [B, L, 1]
  // A flat row is divided by 1 instead of by its range, so that no NaN enters the graph. The weights of flat rows become constant at the
  // end.
  const at::Tensor z = (similarity - low) / range.masked_fill(flat, 1.0);
  const at::Tensor kept = z.masked_fill(z < threshold, 0.0);
  const at::Tensor weights = kept / kept.sum(-1, /*keepdim=*/true).masked_fill(flat, 1.0);
  return weights.masked_fill(flat, 1.0 / static_cast<double>(similarity.size(-1)));
}

at::Tensor compute_weights(const Inputs& inputs, bool softmax, Threshold threshold, double softmax_temperature) {
  const at::Tensor similarity = at::matmul(inputs.text, inputs.image.mT());  // [B, L, P]
  const at::Tensor weights =
      softmax ? (similarity / softmax_temperature).softmax(-1)
              : minmax_weights(similarity, threshold.value_or(1.0 / static_cast<double>(similarity.size(-1))));
  return weights.masked_fill(~inputs.mask, 0.0);
}

// Returns true if the kernels cannot be used: for float64, for embeddings of width 0, for more patches than the GPU kernels accept or than
// fit in the shared memory of this GPU, and on devices without kernels.
bool is_composed(const at::Tensor& text, const at::Tensor& image, at::ScalarType dtype) {
  if (dtype == at::kDouble || text.sym_size(2) == 0) return true;
  if (!text.device().is_cuda()) return !has_kernels(text);
  const std::int64_t patches = image.sym_size(1).guard_int(__FILE__, __LINE__);
  const auto type = dtype == at::kBFloat16 ? kernels::DataType::kBfloat16 : kernels::DataType::kFloat32;
  return patches > kernels::kMostPatchesOnGpu || !has_kernels(text, kernels::sparsify_group_block_memory(patches, type));
}

at::Tensor operate(const at::Tensor& text_tokens, const at::Tensor& image_tokens, const at::Tensor& text_mask,
                   std::string_view weights, Threshold threshold, bool sparsify, double softmax_temperature) {
  check_sparsify_group(text_tokens, image_tokens, text_mask);
  TORCH_CHECK(weights == "minmax" || weights == "softmax", "sparsify_group: weights must be minmax or softmax, got ",
              weights);
  TORCH_CHECK(!threshold || (*threshold >= 0.0 && *threshold <= 1.0),
              "sparsify_group: threshold must be in [0, 1], got ", threshold.value_or(0.0));
  TORCH_CHECK(softmax_temperature > 0.0, "sparsify_group: softmax_temperature must be above 0, got ",
              softmax_temperature);
  const at::ScalarType tokens = at::promote_types(text_tokens.scalar_type(), image_tokens.scalar_type());
  const at::ScalarType dtype = computing_type(tokens);
  const bool softmax = weights == "softmax";
  if (!sparsify) threshold = 0.0;
  if (is_composed(text_tokens, image_tokens, dtype)) {
    const Inputs inputs =
        inputs_in(dtype == at::kDouble ? at::kDouble : at::kFloat, text_tokens, image_tokens, text_mask);
    return at::matmul(compute_weights(inputs, softmax, threshold, softmax_temperature), inputs.image).to(tokens);
  }
  return std::get<0>(fused_sparsify_group(text_tokens.to(dtype), image_tokens.to(dtype), text_mask, softmax, threshold,
                                          softmax_temperature, text_tokens.is_cuda() && at::globalContext().allowTF32CuBLAS()))
      .to(tokens);
}

at::Tensor operate_without_autocast(const at::Tensor& text_tokens, const at::Tensor& image_tokens,
                                    const at::Tensor& text_mask, std::string_view weights, Threshold threshold,
                                    bool sparsify, double softmax_temperature) {
  const NoAutocast no_autocast;
  return operate(text_tokens, image_tokens, text_mask, weights, threshold, sparsify, softmax_temperature);
}

}  // namespace sparsify_group_parts
}  // namespace

void check_sparsify_group(const at::Tensor& text_tokens, const at::Tensor& image_tokens, const at::Tensor& text_mask) {
  TORCH_CHECK(text_tokens.dim() == 3, "sparsify_group: text_tokens must be [B, L, D], got ", text_tokens.sym_sizes());
  TORCH_CHECK(text_tokens.is_floating_point() && image_tokens.is_floating_point(),
              "sparsify_group: text_tokens and image_tokens must hold floating-point numbers, got ",
              text_tokens.scalar_type(), " and ", image_tokens.scalar_type());
  const c10::SymInt batch = text_tokens.sym_size(0), width = text_tokens.sym_size(2);
  TORCH_CHECK(image_tokens.dim() == 3 && image_tokens.sym_size(0) == batch && image_tokens.sym_size(2) == width,
              "sparsify_group: image_tokens must be [B, P, D] = [", batch, ", P, ", width, "], got ",
              image_tokens.sym_sizes());
  TORCH_CHECK(image_tokens.sym_size(1) > 0, "sparsify_group: image_tokens must hold at least one patch, got ",
              image_tokens.sym_sizes());
  TORCH_CHECK(
      text_mask.dim() == 2 && text_mask.sym_size(0) == batch && text_mask.sym_size(1) == text_tokens.sym_size(1),
      "sparsify_group: text_mask must be [B, L] = [", batch, ", ", text_tokens.sym_size(1), "], got ",
      text_mask.sym_sizes());
  TORCH_CHECK(text_mask.scalar_type() == at::kBool, "sparsify_group: text_mask must be bool, got ",
              text_mask.scalar_type());
  TORCH_CHECK(image_tokens.device() == text_tokens.device() && text_mask.device() == text_tokens.device(),
              "sparsify_group: text_tokens, image_tokens and text_mask must be on one device, got ",
              text_tokens.device(), ", ", image_tokens.device(), " and ", text_mask.device());
}

void define_sparsify_group(torch::Library& library) {
  using namespace sparsify_group_parts;
  define_fused_sparsify_group(library);
  library.def(
      "sparsify_group(Tensor text_tokens, Tensor image_tokens, Tensor text_mask, *, str weights=\"minmax\", "
      "float? threshold=None, bool sparsify=True, float softmax_temperature=1.0) -> Tensor",
      {at::Tag::pt2_compliant_tag});
  implement<operate, operate_without_autocast>(library, "sparsify_group");
}

at::Tensor sparsify_group(const at::Tensor& text_tokens, const at::Tensor& image_tokens, const at::Tensor& text_mask,
                          const SparsifySettings& settings) {
  using namespace sparsify_group_parts;
  register_operators();
  static const auto registered = operation<decltype(operate)>("tessera::sparsify_group");
  return registered.call(text_tokens, image_tokens, text_mask, settings.weights, settings.threshold, settings.sparsify,
                        settings.softmax_temperature);
}

at::Tensor sparsify_weights(const at::Tensor& text_tokens, const at::Tensor& image_tokens, const at::Tensor& text_mask,
                            const SparsifySettings& settings) {
  using namespace sparsify_group_parts;
  const NoAutocast no_autocast;
  const at::NoGradGuard no_grad;
  check_sparsify_group(text_tokens, image_tokens, text_mask);
  const bool wide = text_tokens.scalar_type() == at::kDouble || image_tokens.scalar_type() == at::kDouble;
  return compute_weights(inputs_in(wide ? at::kDouble : at::kFloat, text_tokens, image_tokens, text_mask),
                    settings.weights == "softmax", settings.threshold_for(image_tokens.size(1)),
                    settings.softmax_temperature);
}

}  // namespace tessera
