#include "src/ops/token_contrast.h"

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include "kernels/token_contrast/token_contrast.h"
#include "src/ops/dispatch.h"
#include "src/ops/kernel_call.h"
#include "src/ops/operators.h"
#include <tessera/ops/numeric.h>

namespace tessera {
namespace {
namespace token_contrast_parts {

using Mask = std::optional<at::Tensor>;
using Gradients = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

at::Tensor composed(const at::Tensor& queries, const at::Tensor& keys, const at::Tensor& mask, const at::Tensor& scale) {
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

at::Tensor composed_from_rows(const at::Tensor& queries, const at::Tensor& keys, const at::Tensor& mask, const at::Tensor& scale) {
  return composed(unit_rows(to_compute(queries)), unit_rows(to_compute(keys)), mask, scale);
}

void check_inputs(const at::Tensor& queries, const at::Tensor& keys, const Mask& mask, const at::Tensor& scale) {
  TORCH_CHECK(queries.dim() == 3 && queries.size(1) > 0 && queries.size(2) > 0, "token_contrast: queries must be [B, N, D], got ",
              queries.sizes());
  TORCH_CHECK(keys.sizes() == queries.sizes() && keys.scalar_type() == queries.scalar_type() && keys.device() == queries.device(),
              "token_contrast: keys must be ", queries.scalar_type(), " ", queries.sizes(), " on ", queries.device(),
              " as queries are, got ", keys.scalar_type(), " ", keys.sizes(), " on ", keys.device());
  TORCH_CHECK(!mask || (mask->scalar_type() == at::kBool && mask->sizes() == queries.sizes().slice(0, 2)),
              "token_contrast: mask must be bool [B, N]");
  TORCH_CHECK(scale.numel() == 1 && scale.scalar_type() == compute_dtype(queries), "token_contrast: scale must be one number, ",
              compute_dtype(queries));
}

kernels::ConstRows rows_of(const at::Tensor& x) {
  return {x.const_data_ptr(), x.stride(0), x.stride(1)};
}
kernels::Rows gradient_rows(at::Tensor& x) {
  return {x.mutable_data_ptr(), x.stride(0), x.stride(1)};
}

// The inputs of a kernel, in the form that it takes.
struct Inputs {
  at::Tensor queries, keys, mask, scale;

  Inputs(const at::Tensor& given_queries, const at::Tensor& given_keys, const Mask& given_mask, const at::Tensor& given_scale)
      : queries(contiguous_rows(given_queries)),
        keys(contiguous_rows(given_keys)),
        mask(given_mask ? given_mask->contiguous() : at::Tensor()),
        scale(given_scale) {}

  template <class Call>
  Call call(bool tf32) const {
    Call out;
    out.problem = {queries.size(0), queries.size(1), queries.size(2), kernel_type(queries), tf32};
    out.queries = rows_of(queries);
    out.keys = rows_of(keys);
    out.mask = mask.defined() ? mask_bytes(mask) : nullptr;
    out.scale = scale.const_data_ptr<float>();
    return out;
  }
};

at::Tensor forward_on_device(const at::Tensor& queries, const at::Tensor& keys, const Mask& mask, const at::Tensor& scale, bool tf32) {
  check_inputs(queries, keys, mask, scale);
  if (queries.is_cpu()) return composed_from_rows(queries, keys, mask.value_or(at::Tensor()), scale);
  const c10::OptionalDeviceGuard device(queries.device());
  const Inputs inputs(queries, keys, mask, scale);
  at::Tensor losses = at::empty(queries.sizes().slice(0, 2), scale.options());
  auto call = inputs.call<kernels::TokenContrastForward>(tf32);
  call.losses = losses.mutable_data_ptr<float>();
  check_status(kernels::cuda::token_contrast_forward(call, current_stream(queries)));
  return losses;
}

Gradients backward_on_device(const at::Tensor& grad_losses, const at::Tensor& queries, const at::Tensor& keys, const Mask& mask,
                             const at::Tensor& scale, bool tf32) {
  check_inputs(queries, keys, mask, scale);
  if (queries.is_cpu()) {
    // Operators run below autograd, which the composition needs.
    const c10::impl::LocalDispatchKeySet now = c10::impl::tls_local_dispatch_key_set();
    const c10::impl::ForceDispatchKeyGuard recording(now.included_, now.excluded_ - c10::autograd_dispatch_keyset_with_ADInplaceOrView);
    const at::AutoGradMode with_gradient(true);
    torch::autograd::variable_list inputs;
    for (const at::Tensor& each : {queries, keys, scale}) inputs.push_back(each.detach().requires_grad_());
    const at::Tensor losses = composed_from_rows(inputs[0], inputs[1], mask.value_or(at::Tensor()), inputs[2]);
    const auto gradients = torch::autograd::grad({losses}, inputs, {grad_losses});
    return {gradients[0], gradients[1], gradients[2]};
  }
  const c10::OptionalDeviceGuard device(queries.device());
  const Inputs inputs(queries, keys, mask, scale);
  const at::Tensor of_losses = grad_losses.contiguous();
  at::Tensor grad_queries = at::empty(queries.sizes(), queries.options()), grad_keys = at::empty_like(grad_queries),
             of_scale = at::empty({queries.size(0)}, scale.options());
  auto call = inputs.call<kernels::TokenContrastBackward>(tf32);
  call.grad_losses = of_losses.const_data_ptr<float>();
  call.grad_queries = gradient_rows(grad_queries);
  call.grad_keys = gradient_rows(grad_keys);
  call.grad_scale = of_scale.mutable_data_ptr<float>();
  check_status(kernels::cuda::token_contrast_backward(call, current_stream(queries)));
  return {grad_queries, grad_keys, of_scale.sum().view(scale.sizes())};
}

at::Tensor forward_on_meta(const at::Tensor& queries, const at::Tensor&, const Mask&, const at::Tensor& scale, bool) {
  return at::empty_symint(queries.sym_sizes().slice(0, 2), scale.options());
}

Gradients backward_on_meta(const at::Tensor&, const at::Tensor& queries, const at::Tensor& keys, const Mask&, const at::Tensor& scale,
                           bool) {
  return {at::empty_symint(queries.sym_sizes(), queries.options()), at::empty_symint(keys.sym_sizes(), keys.options()),
          at::empty_symint(scale.sym_sizes(), scale.options())};
}

class FusedTokenContrast : public torch::autograd::Function<FusedTokenContrast> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& queries, const at::Tensor& keys, const Mask& mask,
                            const at::Tensor& scale, bool tf32) {
    static const auto forward = operation<decltype(forward_on_device)>("tessera::_token_contrast");
    const at::AutoDispatchBelowADInplaceOrView below;
    ctx->save_for_backward({queries, keys, mask.value_or(at::Tensor()), scale});
    ctx->saved_data["tf32"] = tf32;
    return forward.call(queries, keys, mask, scale, tf32);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx, torch::autograd::variable_list gradients) {
    TORCH_CHECK(!at::GradMode::is_enabled(), "token_contrast has no second derivatives in float32 and bfloat16: give it float64 rows");
    static const auto backward = operation<decltype(backward_on_device)>("tessera::_token_contrast_backward");
    const auto saved = ctx->get_saved_variables();
    const auto [of_queries, of_keys, of_scale] = backward.call(
        gradients[0], saved[0], saved[1], saved[2].defined() ? Mask(saved[2]) : std::nullopt, saved[3], ctx->saved_data["tf32"].toBool());
    return {of_queries, of_keys, {}, of_scale, {}};
  }
};

at::Tensor forward_with_gradient(const at::Tensor& queries, const at::Tensor& keys, const Mask& mask, const at::Tensor& scale, bool tf32) {
  return FusedTokenContrast::apply(queries, keys, mask, scale, tf32);
}

// Returns the losses by the kernel; undefined if there is none for these rows.
at::Tensor fused(const at::Tensor& queries, const at::Tensor& keys, const at::Tensor& mask, const at::Tensor& scale) {
  if (!queries.is_cuda() || queries.size(1) > kernels::kMostContrastTokens || queries.numel() == 0) return {};
  if (queries.scalar_type() == at::kDouble || keys.scalar_type() == at::kDouble) return {};
  const bool narrow = queries.scalar_type() == at::kBFloat16 && keys.scalar_type() == at::kBFloat16;
  const at::Tensor own = narrow ? queries : queries.to(at::kFloat), other = narrow ? keys : keys.to(at::kFloat);
  if (!has_kernels_for_type(own, kernels::token_contrast_block_memory(own.size(1), kernel_type(own)))) return {};
  register_operators();
  static const auto call = operation<decltype(forward_on_device)>("tessera::_token_contrast");
  return call.call(own, other, mask.defined() ? Mask(mask) : std::nullopt, scale.to(at::kFloat), at::globalContext().allowTF32CuBLAS());
}

}  // namespace token_contrast_parts
}  // namespace

at::Tensor token_contrast(const at::Tensor& queries, const at::Tensor& keys, const at::Tensor& mask, const at::Tensor& scale) {
  const at::Tensor losses = token_contrast_parts::fused(queries, keys, mask, scale);
  return losses.defined() ? losses : token_contrast_parts::composed(queries, keys, mask, scale);
}

at::Tensor normalized_token_contrast(const at::Tensor& queries, const at::Tensor& keys, const at::Tensor& mask, const at::Tensor& scale) {
  const at::Tensor losses = token_contrast_parts::fused(queries, keys, mask, scale);
  return losses.defined() ? losses : token_contrast_parts::composed_from_rows(queries, keys, mask, scale);
}

void define_token_contrast(torch::Library& library) {
  using namespace token_contrast_parts;
  library.def("_token_contrast(Tensor queries, Tensor keys, Tensor? mask, Tensor scale, bool tf32=False) -> Tensor",
              {at::Tag::pt2_compliant_tag});
  library.def(
      "_token_contrast_backward(Tensor grad_losses, Tensor queries, Tensor keys, Tensor? mask, Tensor scale, bool tf32) -> "
      "(Tensor grad_queries, Tensor grad_keys, Tensor grad_scale)",
      {at::Tag::pt2_compliant_tag});
  implement_passes<forward_on_device, backward_on_device, forward_on_meta, backward_on_meta, forward_with_gradient>(library,
                                                                                                                  "_token_contrast");
}

}  // namespace tessera
