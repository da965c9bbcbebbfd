#include "kernels/residual_norm/residual_norm.h"

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <torch/csrc/autograd/custom_function.h>

#include "src/ops/input_edges.h"
#include "src/ops/kernel_call.h"
#include "src/ops/residual_norm.h"
#include <tessera/ops/numeric.h>

namespace tessera {
namespace {
namespace residual_norm_parts {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

bool has_kernel_type(at::ScalarType type) {
  return type == at::kFloat || type == at::kBFloat16;
}

// Returns the update's type; without an update, a type that the kernel supports together with those of the stream and the output.
at::ScalarType update_type_of(const ResidualStream& stream, at::ScalarType output) {
  if (stream.update.value.defined()) return stream.update.value.scalar_type();
  return output == at::kBFloat16 ? output : stream.x.scalar_type();
}

// Whether the kernel supports a call with these types.
bool uses_kernel(const at::Tensor& x, at::ScalarType update, at::ScalarType output) {
  const bool narrow = update == at::kBFloat16, all_float = x.scalar_type() == at::kFloat && output == at::kFloat;
  return x.is_cuda() && has_kernels(x) && x.numel() > 0 && x.size(-1) <= kernels::kMostNormWidth && has_kernel_type(x.scalar_type()) &&
         has_kernel_type(update) && has_kernel_type(output) && (narrow || all_float);
}

at::Tensor floats(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.to(at::kFloat).contiguous() : tensor;
}

const float* floats_at(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.const_data_ptr<float>() : nullptr;
}

const void* data_at(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.const_data_ptr() : nullptr;
}

void* result_at(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.mutable_data_ptr() : nullptr;
}

float* sums_at(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.mutable_data_ptr<float>() : nullptr;
}

// The part of a kernel call that both passes have, and the tensors that it points to.
struct Problem {
  Problem(const at::Tensor& x, const ResidualUpdate& update, at::ScalarType update_type, const NormParameters& norm, at::ScalarType type)
      : factors(floats(update.row_factors)), scale(floats(update.column_scale)), weight(floats(norm.weight)), bias(floats(norm.bias)) {
    const auto kernel = [](at::ScalarType t) { return t == at::kBFloat16 ? kernels::DataType::kBfloat16 : kernels::DataType::kFloat32; };
    call.width = x.size(-1);
    call.rows = x.numel() / call.width;
    call.stream = kernel(x.scalar_type());
    call.update = kernel(update_type);
    call.output = kernel(type);
    call.row_factor = floats_at(factors);
    if (factors.defined()) call.rows_per_factor = call.rows / factors.numel();
    call.column_scale = floats_at(scale);
    call.weight = floats_at(weight);
  }

  at::Tensor factors, scale, weight, bias;
  kernels::ResidualNormProblem call;
};

std::vector<std::int64_t> row_sizes(const at::Tensor& x) {
  std::vector<std::int64_t> sizes = x.sizes().vec();
  sizes.back() = 1;
  return sizes;
}

// Returns factors [B] or [T] in a shape that broadcasts against the stream.
at::Tensor of_rows(const at::Tensor& factors, const at::Tensor& x) {
  std::vector<std::int64_t> shape(static_cast<std::size_t>(x.dim()), 1);
  shape[0] = -1;
  return factors.view(shape);
}

std::vector<std::int64_t> leading_dims(const at::Tensor& x) {
  std::vector<std::int64_t> dims(static_cast<std::size_t>(x.dim() - 1));
  for (std::size_t i = 0; i < dims.size(); ++i) dims[i] = static_cast<std::int64_t>(i);
  return dims;
}

at::Tensor sum_of_rows(const at::Tensor& x) {
  return x.sum(leading_dims(x), /*keepdim=*/false, compute_dtype(x));
}

at::Tensor composed_sum(const ResidualStream& stream) {
  at::Tensor update = stream.update.value;
  if (!update.defined()) return stream.x;
  if (stream.update.column_scale.defined()) update = update * stream.update.column_scale;
  if (stream.update.row_factors.defined()) update = update * of_rows(stream.update.row_factors, update);
  return (stream.x + update).to(stream.x.scalar_type());
}

NormedSum composed(const ResidualStream& stream, const NormParameters& norm, at::ScalarType type) {
  NormedSum out;
  out.sum = composed_sum(stream);
  if (!norm.weight.defined()) return out;
  std::tie(out.output, out.mean, out.rstd) =
      at::native_layer_norm(to_compute(out.sum), norm.weight.sizes(), to_compute(norm.weight), to_compute(norm.bias), norm.epsilon);
  out.output = out.output.to(type);
  return out;
}

NormedSumGradients composed_backward(const NormedSum& result, const ResidualUpdate& update, at::ScalarType update_type,
                                     const NormParameters& norm, const at::Tensor& grad_sum, const at::Tensor& grad_output,
                                     const WantedSums& wanted) {
  NormedSumGradients out;
  out.x = grad_sum;
  if (norm.weight.defined()) {
    at::Tensor through_norm;
    std::tie(through_norm, out.weight, out.bias) =
        at::native_layer_norm_backward(to_compute(grad_output), to_compute(result.sum), norm.weight.sizes(), result.mean, result.rstd,
                                       to_compute(norm.weight), to_compute(norm.bias), {true, wanted.norm, wanted.norm});
    out.x = (grad_sum.defined() ? grad_sum + through_norm : through_norm).to(result.sum.scalar_type());
  }
  at::Tensor gradient = out.x;
  if (update.row_factors.defined()) gradient = gradient * of_rows(update.row_factors, gradient);
  if (wanted.column_scale) out.column_scale = sum_of_rows(gradient * update.value);
  if (update.column_scale.defined()) gradient = gradient * update.column_scale;
  out.value = gradient.to(update_type);
  if (wanted.update_bias) out.update_bias = sum_of_rows(out.value);
  return out;
}

// Adds a stream's update and, if there are norm parameters, normalizes the sum.
class AddAndNormalize : public torch::autograd::Function<AddAndNormalize> {
 public:
  enum Input : std::size_t { kX, kValue, kBias, kScale, kWeight, kNormBias };

  struct Call : torch::CustomClassHolder {
    Call(const ResidualStream& given, const NormParameters& parameters, at::ScalarType output)
        : stream(given),
          norm(parameters),
          type(output),
          value_type(update_type_of(given, output)),
          edges(inputs()),
          recorded(is_recorded(inputs())) {}
    std::vector<at::Tensor> inputs() const {
      return {stream.x, stream.update.value, stream.update.bias, stream.update.column_scale, norm.weight, norm.bias};
    }
    ResidualStream stream;  // x and the value are dropped after the forward pass
    NormParameters norm;
    at::ScalarType type, value_type;
    InputEdges edges;
    bool recorded;
  };

  static at::Tensor forward(AutogradContext* ctx, at::TensorList /*inputs*/, const c10::intrusive_ptr<Call>& call) {
    const NoAutocast no_autocast;
    const NormedSum result = add_and_normalize(call->stream, call->norm, call->type);
    const at::Tensor& out = result.output.defined() ? result.output : result.sum;
    if (!call->recorded) return out;
    ResidualUpdate& update = call->stream.update;
    const at::Tensor value = update.column_scale.defined() ? update.value : at::Tensor();
    const at::Tensor sum = call->norm.weight.defined() ? result.sum : at::Tensor();
    ctx->save_for_backward({sum, result.mean, result.rstd, value, update.column_scale, call->norm.weight, call->norm.bias});
    for (at::Tensor* kept : {&call->stream.x, &update.value, &update.bias, &update.column_scale, &call->norm.weight, &call->norm.bias})
      kept->reset();
    ctx->saved_data["call"] = at::IValue::make_capsule(call);
    return out;
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    TORCH_CHECK(!at::GradMode::is_enabled(), "residual streams have no second derivatives");
    const NoAutocast no_autocast;
    const auto call = c10::static_intrusive_pointer_cast<Call>(ctx->saved_data["call"].toCapsule());
    const variable_list saved = ctx->get_saved_variables();
    const auto needs = [&](Input input) { return call->edges.needs_gradient(*ctx, input); };
    const ResidualUpdate update = {saved[3], {}, saved[4], call->stream.update.row_factors};
    const NormParameters norm = {saved[5], saved[6], call->norm.epsilon};
    const bool normalized = norm.weight.defined();
    const NormedSumGradients found = add_and_normalize_backward(
        {saved[0], {}, saved[1], saved[2]}, update, call->value_type, norm, normalized ? at::Tensor() : gradients[0],
        normalized ? gradients[0] : at::Tensor(), {needs(kBias), needs(kScale), needs(kWeight) || needs(kNormBias)});
    return call->edges.gradients({found.x, found.value, found.update_bias, found.column_scale, found.weight, found.bias}, 1);
  }
};

at::Tensor apply(const ResidualStream& stream, const NormParameters& norm, at::ScalarType type) {
  const auto call = c10::make_intrusive<AddAndNormalize::Call>(stream, norm, type);
  const std::vector<at::Tensor> inputs = defined_ones(call->inputs());
  return AddAndNormalize::apply(at::TensorList(inputs), call);
}

}  // namespace residual_norm_parts
}  // namespace

NormedSum add_and_normalize(const ResidualStream& stream, const NormParameters& norm, at::ScalarType type) {
  using namespace residual_norm_parts;
  const at::Tensor x = stream.x.contiguous();
  const at::Tensor value = stream.update.value.defined() ? stream.update.value.contiguous() : at::Tensor();
  const at::ScalarType output = norm.weight.defined() ? type : x.scalar_type();
  const at::ScalarType update_type = update_type_of(stream, output);
  if (!uses_kernel(x, update_type, output)) return composed(stream, norm, type);
  const c10::OptionalDeviceGuard device(x.device());
  const Problem problem(x, stream.update, update_type, norm, output);
  NormedSum out;
  out.sum = value.defined() ? at::empty_like(x) : x;
  if (norm.weight.defined()) {
    out.output = at::empty(x.sizes(), x.options().dtype(type));
    out.mean = at::empty(row_sizes(x), x.options().dtype(at::kFloat));
    out.rstd = at::empty_like(out.mean);
  }
  kernels::ResidualNormForward call;
  call.problem = problem.call;
  call.x = x.const_data_ptr();
  call.update = data_at(value);
  call.bias = floats_at(problem.bias);
  call.epsilon = static_cast<float>(norm.epsilon);
  call.sum = value.defined() ? out.sum.mutable_data_ptr() : nullptr;
  call.output = result_at(out.output);
  call.mean = sums_at(out.mean);
  call.rstd = sums_at(out.rstd);
  check_status(kernels::cuda::residual_norm_forward(call, current_stream(x)));
  return out;
}

NormedSumGradients add_and_normalize_backward(const NormedSum& result, const ResidualUpdate& update, at::ScalarType update_type,
                                              const NormParameters& norm, const at::Tensor& given_grad_sum, const at::Tensor& given_grad_output,
                                              const WantedSums& wanted) {
  using namespace residual_norm_parts;
  const at::Tensor& like = norm.weight.defined() ? result.sum : given_grad_sum;
  const at::ScalarType output = norm.weight.defined() ? given_grad_output.scalar_type() : like.scalar_type();
  if (!uses_kernel(like, update_type, output))
    return composed_backward(result, update, update_type, norm, given_grad_sum, given_grad_output, wanted);
  const c10::OptionalDeviceGuard device(like.device());
  const auto contiguous = [](const at::Tensor& tensor) { return tensor.defined() ? tensor.contiguous() : tensor; };
  const at::Tensor sum = contiguous(result.sum), grad_sum = contiguous(given_grad_sum), grad_output = contiguous(given_grad_output),
                   value = contiguous(update.value);
  const Problem problem(like, update, update_type, norm, output);
  const auto sums = [&](bool needed) {
    return needed ? at::empty({like.size(-1)}, like.options().dtype(at::kFloat)) : at::Tensor();
  };
  const bool scaled = update.row_factors.defined() || update.column_scale.defined();
  NormedSumGradients out;
  out.x = norm.weight.defined() ? at::empty_like(sum) : grad_sum;
  out.value = !scaled && update_type == out.x.scalar_type() ? out.x : at::empty(like.sizes(), like.options().dtype(update_type));
  out.update_bias = sums(wanted.update_bias);
  out.column_scale = sums(wanted.column_scale);
  out.weight = sums(wanted.norm);
  out.bias = sums(wanted.norm);
  const at::Tensor memory = workspace(kernels::cuda::residual_norm_workspace(problem.call.rows, problem.call.width), like);
  kernels::ResidualNormBackward call;
  call.problem = problem.call;
  call.sum = data_at(sum);
  call.mean = floats_at(result.mean);
  call.rstd = floats_at(result.rstd);
  call.update = data_at(value);
  call.grad_sum = data_at(grad_sum);
  call.grad_output = data_at(grad_output);
  if (norm.weight.defined()) call.grad_x = out.x.mutable_data_ptr();
  if (!out.value.is_same(out.x)) call.grad_update = out.value.mutable_data_ptr();
  call.grad_update_bias = sums_at(out.update_bias);
  call.grad_column_scale = sums_at(out.column_scale);
  call.grad_weight = sums_at(out.weight);
  call.grad_bias = sums_at(out.bias);
  call.workspace = memory.mutable_data_ptr();
  check_status(kernels::cuda::residual_norm_backward(call, current_stream(like)));
  return out;
}

at::Tensor residual_sum(const ResidualStream& stream) {
  if (!stream.update.value.defined()) return stream.x;
  return residual_norm_parts::apply(stream, {}, stream.x.scalar_type());
}

at::Tensor residual_norm(const ResidualStream& stream, const NormParameters& norm, at::ScalarType type) {
  return residual_norm_parts::apply(stream, norm, type);
}

}  // namespace tessera
