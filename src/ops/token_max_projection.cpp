#include "kernels/token_max_projection/token_max_projection.h"

#include <array>

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <ATen/record_function.h>
#include <c10/core/DeviceGuard.h>
#include <torch/csrc/autograd/custom_function.h>

#include "src/ops/dispatch.h"
#include "src/ops/kernel_call.h"
#include "src/ops/operators.h"
#include "src/ops/token_max_projection.h"
#include "src/ops/token_max_projection_tiles.h"
#include <tessera/ops/numeric.h>
#include <tessera/ops/token_max_projection.h>

namespace tessera {
namespace {
namespace token_max_projection_parts {

using Mask = std::optional<at::Tensor>;
using Pair = std::tuple<at::Tensor, at::Tensor>;
using Three = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

// Checks the arguments, using only sym_size(), so that tracing with symbolic sizes works.
void check(const at::Tensor& tokens, const Mask& mask, const at::Tensor& table, const at::Tensor& bias) {
  TORCH_CHECK(tokens.dim() == 3 && tokens.sym_size(1) > 0 && tokens.sym_size(2) > 0 && tokens.is_floating_point(),
              "token_max_projection: tokens must be floating [B, N, w] with N and w at least 1, got ",
              tokens.scalar_type(), " ", tokens.sym_sizes());
  TORCH_CHECK(table.dim() == 2 && table.sym_size(0) > 0 && table.sym_size(1) == tokens.sym_size(2) &&
                  table.scalar_type() == tokens.scalar_type(),
              "token_max_projection: table must be ", tokens.scalar_type(), " [V, w] = [V, ", tokens.sym_size(2),
              "] as the tokens are, got ", table.scalar_type(), " ", table.sym_sizes());
  TORCH_CHECK(bias.dim() == 1 && bias.sym_size(0) == table.sym_size(0) && bias.is_floating_point(),
              "token_max_projection: bias must be floating [V] = [", table.sym_size(0), "], got ", bias.scalar_type(),
              " ", bias.sym_sizes());
  TORCH_CHECK(!mask || (mask->scalar_type() == at::kBool && mask->dim() == 2 &&
                        mask->sym_size(0) == tokens.sym_size(0) && mask->sym_size(1) == tokens.sym_size(1)),
              "token_max_projection: mask must be bool ", tokens.sym_sizes().slice(0, 2), ", got ", mask->scalar_type(),
              " ", mask->sym_sizes());
  TORCH_CHECK(table.device() == tokens.device() && bias.device() == tokens.device() &&
                  (!mask || mask->device() == tokens.device()),
              "token_max_projection: tokens, mask, table and bias must be on one device, got ", tokens.device(), ", ",
              mask ? mask->device() : tokens.device(), ", ", table.device(), " and ", bias.device());
}

kernels::TokenMaxProjectionProblem make_problem(const at::Tensor& tokens, const at::Tensor& table) {
  return {tokens.size(0), tokens.size(1), table.size(0), tokens.size(2), kernel_type(tokens), nullptr};
}

// Computes LibTorch's matrix product on memory that does not belong to a tensor. The profiler does not record this
// call, because operator_flops counts the FLOPs of the whole operator.
void library_product(std::int64_t rows, std::int64_t columns, std::int64_t depth, const float* a, const float* b,
                     float* c) {
  const at::RecordFunctionGuard unrecorded(/*is_enabled=*/false);
  const at::AutoDispatchBelowADInplaceOrView below;
  const NoAutocast no_autocast;
  const auto matrix = [](const float* data, std::int64_t height, std::int64_t width) {
    return at::from_blob(const_cast<float*>(data), {height, width}, at::kFloat);
  };
  at::Tensor product = matrix(c, rows, columns);
  at::mm_out(product, matrix(a, rows, depth), matrix(b, columns, depth).t());
}

Pair forward_on_device(const at::Tensor& tokens, const Mask& mask, const at::Tensor& table, const at::Tensor& bias) {
  check(tokens, mask, table, bias);
  const c10::OptionalDeviceGuard device(tokens.device());
  if (!has_kernels_for_type(tokens)) return token_max_projection_in_tiles(tokens, mask.value_or(at::Tensor()), table, bias);
  const at::Tensor x = tokens.contiguous(), rows = table.contiguous(), offset = bias.contiguous(),
                   real = mask ? mask->contiguous() : at::Tensor();
  const at::Tensor encoding = at::empty({x.size(0), rows.size(0)}, offset.options()),
                   argmax = at::empty(encoding.sizes(), offset.options().dtype(at::kLong));
  kernels::TokenMaxProjectionForward call;
  call.problem = make_problem(x, rows);
  if (x.is_cuda()) {
    static const std::vector<std::string> known = kernels::token_max_projection_configurations();
    call.problem.configuration = tuned_configuration(token_max_projection_tuning_key(x.scalar_type(), x.size(1)), known);
  }
  call.tokens = x.const_data_ptr();
  if (mask) call.mask = mask_bytes(real);
  call.table = rows.const_data_ptr();
  call.bias = offset.const_data_ptr<float>();
  call.encoding = encoding.mutable_data_ptr<float>();
  call.argmax = argmax.mutable_data_ptr<std::int64_t>();
  check_status(x.device().is_cpu() ? kernels::cpu::token_max_projection_forward(call, library_product, torch_threads())
                                   : kernels::cuda::token_max_projection_forward(call, current_stream(x)));
  return {encoding, argmax};
}

Three backward_on_device(const at::Tensor& grad_encoding, const at::Tensor& encoding, const at::Tensor& tokens,
                         const Mask& mask, const at::Tensor& table, const at::Tensor& argmax,
                         std::array<bool, 3> output_mask) {
  const c10::OptionalDeviceGuard device(tokens.device());
  // d log(1 + m) / dm = 1 / (1 + m) = exp(-encoding). NaN stays NaN.
  const at::Tensor weight = encoding.neg().exp_().mul_(grad_encoding).masked_fill_(encoding == 0, 0);
  const at::Tensor grad_bias = output_mask[2] ? weight.sum(0) : at::Tensor();
  if (!has_kernels_for_type(tokens)) {
    const auto [grad_tokens, grad_table] =
        token_max_projection_gradient(weight, tokens, mask.value_or(at::Tensor()), table, argmax);
    return {grad_tokens, grad_table, grad_bias};
  }
  const at::Tensor x = tokens.contiguous(), rows = table.contiguous(), places = argmax.contiguous();
  at::Tensor grad_tokens, grad_table;
  if (output_mask[0]) grad_tokens = at::empty(x.sizes(), x.options());
  if (output_mask[1]) grad_table = at::empty(rows.sizes(), rows.options());
  kernels::TokenMaxProjectionBackward call;
  call.problem = make_problem(x, rows);
  call.tokens = x.const_data_ptr();
  call.table = rows.const_data_ptr();
  call.argmax = places.const_data_ptr<std::int64_t>();
  call.weight = weight.const_data_ptr<float>();
  if (output_mask[0]) call.grad_tokens = grad_tokens.mutable_data_ptr();
  if (output_mask[1]) call.grad_table = grad_table.mutable_data_ptr();
  check_status(x.device().is_cpu() ? kernels::cpu::token_max_projection_backward(call, torch_threads())
                                   : kernels::cuda::token_max_projection_backward(call, current_stream(x)));
  return {grad_tokens, grad_table, grad_bias};
}

Pair forward_on_meta(const at::Tensor& tokens, const Mask& mask, const at::Tensor& table, const at::Tensor& bias) {
  check(tokens, mask, table, bias);
  const c10::SymInt rows = tokens.sym_size(0), columns = table.sym_size(0);
  return {at::empty_symint({rows, columns}, bias.options()),
          at::empty_symint({rows, columns}, bias.options().dtype(at::kLong))};
}

Three backward_on_meta(const at::Tensor&, const at::Tensor& encoding, const at::Tensor& tokens, const Mask&,
                       const at::Tensor& table, const at::Tensor&, std::array<bool, 3> output_mask) {
  const auto like = [](bool wanted, const at::Tensor& tensor) {
    return wanted ? at::empty_symint(tensor.sym_sizes(), tensor.options()) : at::Tensor();
  };
  return {like(output_mask[0], tokens), like(output_mask[1], table),
          output_mask[2] ? at::empty_symint({table.sym_size(0)}, encoding.options()) : at::Tensor()};
}

Pair call_forward(const at::Tensor& tokens, const Mask& mask, const at::Tensor& table, const at::Tensor& bias) {
  static const auto forward = operation<decltype(forward_on_device)>("tessera::_token_max_projection");
  return forward.call(tokens, mask, table, bias);
}

// The mask is the last input, because needs_input_grad() does not count an undefined mask. If other inputs followed the mask, their indices
// would shift.
class MaxProjection : public torch::autograd::Function<MaxProjection> {
 public:
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* ctx, const at::Tensor& tokens,
                                                const at::Tensor& table, const at::Tensor& bias, const Mask& mask) {
    const at::AutoDispatchBelowADInplaceOrView below;
    const auto [encoding, argmax] = call_forward(tokens, mask, table, bias);
    ctx->save_for_backward({encoding, tokens, mask.value_or(at::Tensor()), table, argmax});
    ctx->mark_non_differentiable({argmax});
    return {encoding, argmax};
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list gradients) {
    TORCH_CHECK(!at::GradMode::is_enabled(), "token_max_projection has no second derivatives");
    static const auto backward = operation<decltype(backward_on_device)>("tessera::_token_max_projection_backward");
    const auto saved = ctx->get_saved_variables();
    const Mask mask = saved[2].defined() ? Mask(saved[2]) : std::nullopt;
    const auto [tokens, table, bias] =
        backward.call(gradients[0], saved[0], saved[1], mask, saved[3], saved[4],
                      {ctx->needs_input_grad(0), ctx->needs_input_grad(1), ctx->needs_input_grad(2)});
    return {tokens, table, bias, {}};
  }
};

Pair forward_with_gradient(const at::Tensor& tokens, const Mask& mask, const at::Tensor& table,
                           const at::Tensor& bias) {
  const auto both = MaxProjection::apply(tokens, table, bias, mask);
  return {both[0], both[1]};
}

Pair operate(const at::Tensor& tokens, const Mask& mask, const at::Tensor& table, const at::Tensor& bias) {
  check(tokens, mask, table, bias);
  const at::ScalarType type = has_kernels_for_type(tokens) ? tokens.scalar_type() : compute_dtype(tokens);
  return call_forward(tokens.to(type), mask, table.to(type), bias.to(compute_dtype(tokens)));
}

// Under autocast to bfloat16, computes in bfloat16 only on a GPU, where a tensor-core kernel exists. On the CPU, rounding to bfloat16 would
// bring no benefit. Autocast to other types is ignored.
Pair operate_under_autocast(const at::Tensor& tokens, const Mask& mask, const at::Tensor& table,
                            const at::Tensor& bias) {
  const at::DeviceType device = tokens.device().type();
  const bool narrow = tokens.is_cuda() && at::autocast::is_autocast_enabled(device) &&
                      at::autocast::get_autocast_dtype(device) == at::kBFloat16 && tokens.scalar_type() == at::kFloat &&
                      table.scalar_type() == at::kFloat;
  const NoAutocast no_autocast;
  return narrow ? operate(tokens.to(at::kBFloat16), mask, table.to(at::kBFloat16), bias)
                : operate(tokens, mask, table, bias);
}

}  // namespace token_max_projection_parts
}  // namespace

TuningKey token_max_projection_tuning_key(at::ScalarType type, std::int64_t positions) {
  return {"token_max_projection", kernels::Pass::kForward, type, {(positions + 7) / 8 * 8}};
}

void define_token_max_projection(torch::Library& library) {
  using namespace token_max_projection_parts;
  library.def(
      "token_max_projection(Tensor tokens, Tensor? mask, Tensor table, Tensor bias) -> (Tensor encoding, Tensor "
      "argmax)",
      {at::Tag::pt2_compliant_tag});
  library.def(
      "_token_max_projection(Tensor tokens, Tensor? mask, Tensor table, Tensor bias) -> (Tensor encoding, Tensor "
      "argmax)",
      {at::Tag::pt2_compliant_tag});
  library.def(
      "_token_max_projection_backward(Tensor grad_encoding, Tensor encoding, Tensor tokens, Tensor? mask, Tensor "
      "table, "
      "Tensor argmax, bool[3] output_mask) -> (Tensor grad_tokens, Tensor grad_table, Tensor grad_bias)",
      {at::Tag::pt2_compliant_tag});
  implement<operate, operate_under_autocast>(library, "token_max_projection");
  implement_passes<forward_on_device, backward_on_device, forward_on_meta, backward_on_meta, forward_with_gradient>(
      library, "_token_max_projection");
}

TokenMaxProjection token_max_projection(const at::Tensor& tokens, const at::Tensor& mask, const at::Tensor& table,
                                        const at::Tensor& bias) {
  using namespace token_max_projection_parts;
  register_operators();
  static const auto registered = operation<decltype(operate)>("tessera::token_max_projection");
  const auto [encoding, argmax] = registered.call(tokens, mask.defined() ? Mask(mask) : std::nullopt, table, bias);
  return {encoding, argmax};
}

}  // namespace tessera
