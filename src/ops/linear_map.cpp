#include "src/ops/linear_map.h"

#include <algorithm>
#include <bit>
#include <optional>

#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <c10/core/DeviceGuard.h>
#include <torch/nn/functional/linear.h>

#include "src/ops/activation.h"
#include "src/ops/kernel_call.h"
#include <tessera/base/text.h>
#include <tessera/ops/numeric.h>

namespace tessera {
namespace {
namespace linear_map_parts {

using kernels::GemmKind;

bool is_aligned(const at::Tensor& tensor) {
  return reinterpret_cast<std::uintptr_t>(tensor.const_data_ptr()) % 16 == 0;
}

// Whether kernels/gemm takes these matrices, given as a product a b.
bool fits(const at::Tensor& a, const at::Tensor& b) {
  const auto narrow = [](const at::Tensor& each) {
    return each.is_cuda() && each.scalar_type() == at::kBFloat16 && each.numel() > 0 && is_aligned(each);
  };
  return narrow(a) && narrow(b) && has_kernels(a) && kernels::cuda::has_gemm();
}

at::Tensor rows_of(const at::Tensor& x) {
  return x.reshape({-1, x.size(-1)}).contiguous();
}

std::vector<std::int64_t> with_last(const at::Tensor& x, std::int64_t last) {
  std::vector<std::int64_t> sizes = x.sizes().vec();
  sizes.back() = last;
  return sizes;
}

std::vector<std::int64_t> leading_dims(const at::Tensor& x) {
  std::vector<std::int64_t> dims;
  for (std::int64_t i = 0; i + 1 < x.dim(); ++i) dims.push_back(i);
  return dims;
}

// Chooses the algorithm of a product on the tensor's device. Returns false if there is none.
bool finds_algorithm(kernels::GemmCall& call, const at::Tensor& like) {
  const c10::OptionalDeviceGuard device(like.device());
  if (call.problem.in % 8 == 0 && call.problem.out % 8 == 0)
    call.algorithm = choose_algorithm(call.problem, kernels::cuda::gemm_algorithms(call.problem));
  return !call.algorithm.empty();
}

// Runs a product of kernels/gemm, which is that of the matrices a and b: meters count its operations by them.
void run(kernels::GemmCall& call, const at::Tensor& a, const at::Tensor& b) {
  const c10::OptionalDeviceGuard device(a.device());
  const at::Tensor memory = workspace(kernels::cuda::gemm_workspace(), a);
  call.workspace = memory.mutable_data_ptr();
  RECORD_FUNCTION("tessera::_linear_product", std::vector<c10::IValue>({a, b}));
  check_status(kernels::cuda::gemm(call, current_stream(a)));
}

// Returns the result of kernels/gemm, or nothing if it cannot compute this product. With an activation, `before` is its argument.
std::optional<at::Tensor> library_map(const at::Tensor& x, const MapParameters& parameters, const std::string* activation = nullptr,
                                      at::Tensor* before = nullptr) {
  const at::Tensor weight = parameters.multiplied().contiguous();
  if (!fits(x, weight)) return std::nullopt;
  const at::Tensor rows = rows_of(x), bias = parameters.bias.defined() ? parameters.bias.to(at::kBFloat16).contiguous() : at::Tensor();
  if (bias.defined() && !is_aligned(bias)) return std::nullopt;
  kernels::GemmCall call;
  call.problem.rows = rows.size(0), call.problem.in = rows.size(1), call.problem.out = weight.size(0);
  call.problem.bias = bias.defined();
  if (activation != nullptr) {
    if (!kernels::find_activation(*activation, call.problem.activation)) return std::nullopt;
    call.problem.activated = true;
  }
  if (!finds_algorithm(call, x)) return std::nullopt;
  const at::Tensor result = at::empty(with_last(x, weight.size(0)), x.options());
  if (activation != nullptr) {
    *before = at::empty_like(result);
    call.before = before->mutable_data_ptr();
  }
  call.x = rows.const_data_ptr();
  call.weight = weight.const_data_ptr();
  call.bias = bias.defined() ? bias.const_data_ptr() : nullptr;
  call.result = result.mutable_data_ptr();
  run(call, rows, weight.t());
  return result;
}

// Whether kernels/activation computes this activation of the tensor.
bool has_activation_kernel(const at::Tensor& x, const std::string& activation, kernels::Activation& found) {
  return x.is_cuda() && x.numel() > 0 && has_kernels_for_type(x) && kernels::find_activation(activation, found);
}

kernels::ActivationProblem problem_of(const at::Tensor& x, kernels::Activation activation) {
  return {activation, x.numel() / x.size(-1), x.size(-1), kernel_type(x)};
}

const void* data_of(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.const_data_ptr() : nullptr;
}

at::Tensor activated(const at::Tensor& given, const at::Tensor& given_factor, const std::string& activation) {
  kernels::Activation kind;
  if (!has_activation_kernel(given, activation, kind))
    return given_factor.defined() ? activate(given, activation) * given_factor : activate(given, activation);
  const c10::OptionalDeviceGuard device(given.device());
  const at::Tensor x = given.contiguous(), factor = given_factor.defined() ? given_factor.contiguous() : at::Tensor();
  const at::Tensor y = at::empty_like(x);
  check_status(kernels::cuda::activation_forward({problem_of(x, kind), x.const_data_ptr(), data_of(factor), y.mutable_data_ptr()},
                                                 current_stream(x)));
  return y;
}

}  // namespace linear_map_parts
}  // namespace

TuningKey linear_map_tuning_key(const kernels::GemmProblem& p) {
  const auto rows = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(p.rows)));
  const std::int64_t kind = static_cast<std::int64_t>(p.kind), activation = p.activated ? 1 + static_cast<std::int64_t>(p.activation) : 0;
  return {"linear_map", p.kind == kernels::GemmKind::kForward ? kernels::Pass::kForward : kernels::Pass::kBackward, at::kBFloat16,
          {kind, rows, p.in, p.out, p.result == kernels::DataType::kFloat32, p.bias, activation, p.accumulate}};
}

std::string choose_algorithm(const kernels::GemmProblem& problem, const std::vector<std::string>& algorithms) {
  if (algorithms.empty()) return {};
  const char* const tuned = tuned_configuration(linear_map_tuning_key(problem));
  return tuned != nullptr && contains(algorithms, tuned) ? tuned : algorithms.front();
}

at::Tensor apply_map(const at::Tensor& x, const MapParameters& parameters, bool by_functional) {
  if (const auto found = linear_map_parts::library_map(x, parameters)) return *found;
  const at::Tensor& weight = parameters.multiplied();
  const bool functional = by_functional && !x.is_cuda(), in_own_type = functional && x.dim() > 2;
  const at::Tensor bias = parameters.bias.defined() && !in_own_type ? parameters.bias.to(weight.scalar_type()) : parameters.bias;
  return functional ? torch::nn::functional::linear(x, weight, bias) : at::linear(x, weight, bias);
}

ActivatedMap map_and_activate(at::Tensor x, const MapParameters& parameters, bool by_functional, const std::string& activation) {
  ActivatedMap out;
  if (const auto found = linear_map_parts::library_map(x, parameters, &activation, &out.before)) {
    out.after = *found;
    return out;
  }
  out.before = apply_map(x, parameters, by_functional);
  x.reset();
  out.after = linear_map_parts::activated(out.before, {}, activation);
  return out;
}

at::Tensor activate_and_multiply(const at::Tensor& x, const at::Tensor& factor, const std::string& activation) {
  return linear_map_parts::activated(x, factor, activation);
}

at::Tensor input_gradient(const at::Tensor& gradient, const at::Tensor& given_weight, const at::Tensor& sum) {
  using namespace linear_map_parts;
  const at::Tensor weight = given_weight.contiguous();
  if (fits(gradient, weight) && (!sum.defined() || (fits(sum, weight) && sum.is_contiguous()))) {
    const at::Tensor rows = rows_of(gradient);
    kernels::GemmCall call;
    call.problem = {GemmKind::kInputGradient, rows.size(0), weight.size(1), weight.size(0)};
    call.problem.accumulate = sum.defined();
    if (finds_algorithm(call, gradient)) {
      const at::Tensor result = sum.defined() ? sum : at::empty(with_last(gradient, weight.size(1)), gradient.options());
      call.grad_y = rows.const_data_ptr();
      call.weight = weight.const_data_ptr();
      call.result = result.mutable_data_ptr();
      run(call, rows, weight);
      return result;
    }
  }
  const at::Tensor product = gradient.flatten(0, -2).mm(given_weight).view(with_last(gradient, given_weight.size(1)));
  return sum.defined() ? sum + product : product;
}

ActivationGradient activated_input_gradient(const at::Tensor& gradient, const at::Tensor& given_weight, const at::Tensor& given_before,
                                            const std::string& activation, bool bias_wanted) {
  using namespace linear_map_parts;
  const at::Tensor weight = given_weight.contiguous(), before = given_before.contiguous();
  kernels::GemmCall call;
  if (fits(gradient, weight) && fits(before, weight) && kernels::find_activation(activation, call.problem.activation)) {
    const at::Tensor rows = rows_of(gradient);
    call.problem.kind = GemmKind::kInputGradient;
    call.problem.rows = rows.size(0), call.problem.in = weight.size(1), call.problem.out = weight.size(0);
    call.problem.activated = true;
    call.grad_y = rows.const_data_ptr();
    call.weight = weight.const_data_ptr();
    call.before = const_cast<void*>(before.const_data_ptr());  // only read
    ActivationGradient out;
    for (const bool with_bias : {bias_wanted, false}) {
      call.problem.bias = with_bias;
      if (!finds_algorithm(call, gradient)) continue;
      out.x = at::empty_like(before);
      if (with_bias) out.x_bias = at::empty({weight.size(1)}, before.options().dtype(at::kFloat));
      call.result = out.x.mutable_data_ptr();
      call.bias_gradient = with_bias ? out.x_bias.mutable_data_ptr() : nullptr;
      run(call, rows, weight);
      return out;
    }
  }
  return activation_gradient(input_gradient(gradient, given_weight), given_before, {}, activation, bias_wanted);
}

ActivationGradient activation_gradient(const at::Tensor& given_gradient, const at::Tensor& given_x, const at::Tensor& given_factor,
                                       const std::string& activation, bool biases_wanted) {
  using namespace linear_map_parts;
  ActivationGradient out;
  kernels::Activation kind;
  if (has_activation_kernel(given_x, activation, kind) && given_gradient.scalar_type() == given_x.scalar_type()) {
    const c10::OptionalDeviceGuard device(given_x.device());
    const at::Tensor gradient = given_gradient.contiguous(), x = given_x.contiguous(),
                     factor = given_factor.defined() ? given_factor.contiguous() : at::Tensor();
    const auto sums = [&](bool wanted) { return wanted ? at::empty({x.size(-1)}, x.options().dtype(at::kFloat)) : at::Tensor(); };
    const auto floats = [](const at::Tensor& tensor) { return tensor.defined() ? tensor.mutable_data_ptr<float>() : nullptr; };
    const bool gated = factor.defined();
    out = {at::empty_like(x), sums(biases_wanted), gated ? at::empty_like(x) : at::Tensor(), sums(biases_wanted && gated)};
    kernels::ActivationBackward call{problem_of(x, kind), x.const_data_ptr(), data_of(factor), gradient.const_data_ptr(),
                                     out.x.mutable_data_ptr()};
    if (gated) call.grad_factor = out.factor.mutable_data_ptr();
    call.grad_x_sum = floats(out.x_bias);
    call.grad_factor_sum = floats(out.factor_bias);
    const at::Tensor memory = biases_wanted ? workspace(kernels::cuda::activation_workspace(call.problem), x) : at::Tensor();
    call.workspace = memory.defined() ? memory.mutable_data_ptr() : nullptr;
    check_status(kernels::cuda::activation_backward(call, current_stream(x)));
    return out;
  }
  out.x = activate_backward(given_factor.defined() ? given_gradient * given_factor : given_gradient, given_x, activation);
  if (given_factor.defined()) out.factor = given_gradient * activate(given_x, activation);
  const auto sum_of_rows = [&](const at::Tensor& each) {
    return biases_wanted && each.defined() ? each.sum(leading_dims(each), /*keepdim=*/false, compute_dtype(each)) : at::Tensor();
  };
  out.x_bias = sum_of_rows(out.x);
  out.factor_bias = sum_of_rows(out.factor);
  return out;
}

MapGradient parameter_gradient(const at::Tensor& gradient, const at::Tensor& x, at::ScalarType type, bool weight_wanted, bool bias_wanted) {
  using namespace linear_map_parts;
  MapGradient out;
  const bool wide = gradient.is_cuda() && type == at::kFloat;
  if (weight_wanted && fits(gradient, x)) {
    const at::Tensor rows = rows_of(gradient), x_rows = rows_of(x);
    const at::TensorOptions options = gradient.options().dtype(wide ? at::kFloat : at::kBFloat16);
    kernels::GemmCall call;
    call.problem = {GemmKind::kWeightGradient, rows.size(0), x_rows.size(1), rows.size(1)};
    call.problem.result = wide ? kernels::DataType::kFloat32 : kernels::DataType::kBfloat16;
    call.grad_y = rows.const_data_ptr();
    call.x = x_rows.const_data_ptr();
    for (const bool with_bias : {bias_wanted && wide, false}) {  // a bias gradient is float32
      call.problem.bias = with_bias;
      if (!finds_algorithm(call, gradient)) continue;
      out.weight = at::empty({rows.size(1), x_rows.size(1)}, options);
      if (with_bias) out.bias = at::empty({rows.size(1)}, options);
      call.result = out.weight.mutable_data_ptr();
      call.bias_gradient = with_bias ? out.bias.mutable_data_ptr() : nullptr;
      run(call, rows.t(), x_rows);
      break;
    }
  }
  const at::Tensor rows = gradient.flatten(0, -2), x_rows = x.flatten(0, -2);
  if (weight_wanted && !out.weight.defined())
    out.weight = wide && gradient.scalar_type() != at::kFloat ? at::mm(rows.t(), x_rows, at::kFloat) : rows.t().mm(x_rows);
  if (bias_wanted && !out.bias.defined()) out.bias = gradient.sum(leading_dims(gradient), /*keepdim=*/false, compute_dtype(gradient));
  return out;
}

}  // namespace tessera
