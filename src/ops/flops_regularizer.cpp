#include "kernels/flops_regularizer/flops_regularizer.h"

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <torch/csrc/autograd/custom_function.h>

#include "src/ops/dispatch.h"
#include "src/ops/kernel_call.h"
#include "src/ops/operators.h"
#include <tessera/ops/flops_regularizer.h>
#include <tessera/ops/numeric.h>

namespace tessera {
namespace {
namespace flops_regularizer_parts {

using Pair = std::tuple<at::Tensor, at::Tensor>;

void check(const at::Tensor& encoding) {
  TORCH_CHECK(encoding.dim() == 2, "flops_regularizer: encoding must be [N, V], got ", encoding.sym_sizes());
  TORCH_CHECK(encoding.is_floating_point(), "flops_regularizer: encoding must hold floating-point numbers, got ",
              encoding.scalar_type());
  TORCH_CHECK(encoding.sym_size(0) > 0 && encoding.sym_size(1) > 0,
              "flops_regularizer: encoding must hold at least one row and one column, got ", encoding.sym_sizes());
}

// Runs the device's kernel, which writes the results that `out` points to. encoding: float32 or bfloat16.
void run_forward(const at::Tensor& encoding, kernels::FlopsForward out) {
  const at::Tensor rows = contiguous_rows(encoding);
  out.rows = rows.size(0);
  out.columns = rows.size(1);
  out.type = kernel_type(rows);
  out.encoding = rows.const_data_ptr();
  out.row_stride = rows.stride(0);
  const bool on_cpu = rows.device().is_cpu();
  const at::Tensor memory = workspace(on_cpu ? 0 : kernels::cuda::flops_workspace(out), rows);
  out.workspace = memory.mutable_data_ptr();
  check_status(on_cpu ? kernels::cpu::flops_forward(out, torch_threads())
                      : kernels::cuda::flops_forward(out, current_stream(rows)));
}

// Returns the loss, and the column means [V] that the backward pass needs.
Pair forward_on_device(const at::Tensor& encoding, bool) {
  check(encoding);
  TORCH_CHECK(encoding.scalar_type() == at::kFloat || encoding.scalar_type() == at::kBFloat16,
              "_flops_regularizer: encoding must be float32 or bfloat16, got ", encoding.scalar_type());
  const c10::OptionalDeviceGuard device(encoding.device());
  const at::TensorOptions floats = encoding.options().dtype(at::kFloat);
  const at::Tensor loss = at::empty({}, floats), mean = at::empty({encoding.size(1)}, floats);
  run_forward(encoding, {.column_mean = mean.mutable_data_ptr<float>(), .loss = loss.mutable_data_ptr<float>()});
  return {loss, mean};
}

// Returns the gradient of one row [V], which is the same for all rows, or of all rows [N, V].
at::Tensor backward_on_device(const at::Tensor& grad_loss, const at::Tensor& column_mean, c10::SymInt row_count,
                              at::ScalarType dtype, bool dense) {
  const std::int64_t rows = row_count.expect_int();
  const c10::OptionalDeviceGuard device(column_mean.device());
  const at::Tensor weight = grad_loss.to(at::kFloat).contiguous(), mean = column_mean.contiguous();
  const at::Tensor gradient = at::empty({dense ? rows : 1, mean.size(0)}, mean.options().dtype(dtype));
  kernels::FlopsBackward call;
  call.rows = rows;
  call.columns = mean.size(0);
  call.type = kernel_type(gradient);
  call.column_mean = mean.const_data_ptr<float>();
  call.grad_loss = weight.const_data_ptr<float>();
  call.grad_encoding = gradient.mutable_data_ptr();
  call.written_rows = gradient.size(0);
  call.row_stride = call.columns;
  check_status(mean.device().is_cpu() ? kernels::cpu::flops_backward(call, torch_threads())
                                      : kernels::cuda::flops_backward(call, current_stream(mean)));
  return dense ? gradient : gradient.view({-1});
}

Pair forward_on_meta(const at::Tensor& encoding, bool) {
  check(encoding);
  const at::TensorOptions floats = encoding.options().dtype(at::kFloat);
  return {at::empty_symint(c10::SymIntArrayRef{}, floats), at::empty_symint({encoding.sym_size(1)}, floats)};
}

at::Tensor backward_on_meta(const at::Tensor&, const at::Tensor& column_mean, c10::SymInt rows, at::ScalarType dtype,
                            bool dense) {
  const at::TensorOptions options = column_mean.options().dtype(dtype);
  return dense ? at::empty_symint({std::move(rows), column_mean.sym_size(0)}, options)
               : at::empty_symint({column_mean.sym_size(0)}, options);
}

Pair call_forward(const at::Tensor& encoding, bool dense_gradient) {
  static const auto forward = operation<decltype(forward_on_device)>("tessera::_flops_regularizer");
  return forward.call(encoding, dense_gradient);
}

class FusedFlopsRegularizer : public torch::autograd::Function<FusedFlopsRegularizer> {
 public:
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* ctx, const at::Tensor& encoding,
                                                bool dense_gradient) {
    const at::AutoDispatchBelowADInplaceOrView below;
    const auto [loss, mean] = call_forward(encoding, dense_gradient);
    ctx->save_for_backward({mean});
    ctx->saved_data["rows"] = encoding.sym_size(0);
    ctx->saved_data["dtype"] = encoding.scalar_type();
    ctx->saved_data["dense"] = dense_gradient;
    ctx->mark_non_differentiable({mean});
    return {loss, mean};
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list gradients) {
    TORCH_CHECK(!at::GradMode::is_enabled(),
                "flops_regularizer has no second derivatives in float32 and bfloat16: give it a float64 encoding");
    static const auto backward = operation<decltype(backward_on_device)>("tessera::_flops_regularizer_backward");
    const c10::SymInt rows = ctx->saved_data["rows"].toSymInt();
    const bool dense = ctx->saved_data["dense"].toBool();
    const at::Tensor gradient = backward.call(gradients[0], ctx->get_saved_variables()[0], rows,
                                              ctx->saved_data["dtype"].toScalarType(), dense);
    return {dense ? gradient : gradient.expand_symint({rows, gradient.sym_size(0)}), at::Tensor()};
  }
};

class FusedColumnSums : public torch::autograd::Function<FusedColumnSums> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& encoding) {
    const c10::OptionalDeviceGuard device(encoding.device());
    ctx->saved_data["rows"] = encoding.size(0);
    ctx->saved_data["dtype"] = encoding.scalar_type();
    const at::Tensor sums = at::empty({encoding.size(1)}, encoding.options().dtype(at::kFloat));
    run_forward(encoding, {.column_sum = sums.mutable_data_ptr<float>()});
    return sums;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list gradients) {
    return {gradients[0].to(ctx->saved_data["dtype"].toScalarType()).expand({ctx->saved_data["rows"].toInt(), -1})};
  }
};

Pair forward_with_gradient(const at::Tensor& encoding, bool dense_gradient) {
  const auto both = FusedFlopsRegularizer::apply(encoding, dense_gradient);
  return {both[0], both[1]};
}

bool is_composed(const at::Tensor& encoding) {
  return encoding.scalar_type() == at::kDouble || !has_kernels(encoding);
}

at::Tensor to_kernel_type(const at::Tensor& encoding) {
  return encoding.scalar_type() == at::kBFloat16 ? encoding : encoding.to(at::kFloat);
}

at::Tensor operate(const at::Tensor& encoding, bool dense_gradient) {
  check(encoding);
  if (is_composed(encoding)) return to_compute(encoding).mean(0).square().sum();
  return std::get<0>(call_forward(to_kernel_type(encoding), dense_gradient));
}

at::Tensor operate_without_autocast(const at::Tensor& encoding, bool dense_gradient) {
  const NoAutocast no_autocast;
  return operate(encoding, dense_gradient);
}

}  // namespace flops_regularizer_parts
}  // namespace

void define_flops_regularizer(torch::Library& library) {
  using namespace flops_regularizer_parts;
  library.def("flops_regularizer(Tensor encoding, *, bool dense_gradient=False) -> Tensor", {at::Tag::pt2_compliant_tag});
  library.def("_flops_regularizer(Tensor encoding, bool dense_gradient=False) -> (Tensor loss, Tensor column_mean)",
              {at::Tag::pt2_compliant_tag});
  library.def(
      "_flops_regularizer_backward(Tensor grad_loss, Tensor column_mean, SymInt rows, ScalarType dtype, bool dense) -> Tensor",
      {at::Tag::pt2_compliant_tag});
  implement<operate, operate_without_autocast>(library, "flops_regularizer");
  implement_passes<forward_on_device, backward_on_device, forward_on_meta, backward_on_meta, forward_with_gradient>(
      library, "_flops_regularizer");
}

at::Tensor flops_regularizer(const at::Tensor& encoding, bool dense_gradient) {
  using namespace flops_regularizer_parts;
  register_operators();
  static const auto registered = operation<decltype(operate)>("tessera::flops_regularizer");
  return registered.call(encoding, dense_gradient);
}

at::Tensor flops_column_sums(const at::Tensor& encoding) {
  using namespace flops_regularizer_parts;
  check(encoding);
  const NoAutocast no_autocast;
  if (is_composed(encoding) || encoding.is_meta()) return to_compute(encoding).sum(0);
  return FusedColumnSums::apply(to_kernel_type(encoding));
}

}  // namespace tessera
