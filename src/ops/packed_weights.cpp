#include "src/ops/packed_weights.h"

#include <ATen/ATen.h>
#include <ATen/record_function.h>

#include "kernels/packed_map/packed_map.h"
#include "src/ops/activation.h"
#include "src/ops/kernel_call.h"

namespace tessera {
namespace {
namespace packed_weights_parts {

thread_local PackedWeights* current = nullptr;

bool fits(const at::Tensor& tensor) {
  return tensor.is_cpu() && tensor.scalar_type() == at::kFloat;
}

kernels::cpu::PackedMapShape shape_of(const at::Tensor& weight, at::ScalarType type) {
  return {weight.numel() / weight.size(0), weight.size(0), type == at::kBFloat16 ? kernels::DataType::kBfloat16 : kernels::DataType::kFloat32};
}

}  // namespace packed_weights_parts
}  // namespace

PackedWeights::Scope::Scope(PackedWeights* weights) : outer_(packed_weights_parts::current) {
  packed_weights_parts::current = weights;
}

PackedWeights::Scope::~Scope() {
  packed_weights_parts::current = outer_;
}

bool PackedWeights::in_scope() {
  return packed_weights_parts::current != nullptr;
}

at::Tensor PackedWeights::copy_of(const at::Tensor& weight, bool packed) {
  const std::lock_guard lock(mutex_);
  Entry& entry = entries_[{weight.const_data_ptr(), weight.stride(0)}];
  if (entry.version == weight._version()) return entry.copy;
  const at::Tensor source = weight.detach().flatten(1).contiguous();
  if (packed) {
    const auto shape = packed_weights_parts::shape_of(weight, type_);
    entry.copy = workspace(kernels::cpu::packed_weight_bytes(shape), source);
    kernels::cpu::pack_weight(shape, source.const_data_ptr<float>(), entry.copy.mutable_data_ptr(), torch_threads());
  } else {
    entry.copy = source.to(type_);
  }
  entry.weight = weight;
  entry.version = weight._version();
  return entry.copy;
}

at::Tensor PackedWeights::map(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, const std::string& activation) {
  using namespace packed_weights_parts;
  if (current == nullptr || at::GradMode::is_enabled() || !fits(x) || !fits(weight) || (bias.defined() && !fits(bias))) return {};
  const auto shape = shape_of(weight, current->type_);
  if (!kernels::cpu::has_packed_map(shape.type)) {
    if (shape.type == kernels::DataType::kFloat32) return {};
    const at::Tensor narrow = current->copy_of(weight, false), product = at::linear(x.to(current->type_), narrow).to(at::kFloat);
    const at::Tensor sum = bias.defined() ? product + bias : product;
    return activation.empty() ? sum : activate(sum, activation);
  }
  kernels::cpu::PackedMapCall call;
  call.shape = shape;
  call.activated = !activation.empty();
  if (call.activated && !kernels::find_activation(activation, call.activation)) return {};
  TORCH_CHECK(x.size(-1) == shape.in, "PackedWeights: x must be [..., ", shape.in, "], got ", x.sizes());
  const at::Tensor rows = x.contiguous(), packed = current->copy_of(weight, true), addend = bias.defined() ? bias.contiguous() : bias;
  std::vector<std::int64_t> sizes = x.sizes().vec();
  sizes.back() = shape.out;
  const at::Tensor y = at::empty(sizes, x.options());
  call.rows = x.numel() / shape.in;
  const at::Tensor memory = workspace(kernels::cpu::packed_map_workspace(shape, call.rows), x);
  call.x = rows.const_data_ptr<float>();
  call.weight = packed.const_data_ptr();
  call.bias = addend.defined() ? addend.const_data_ptr<float>() : nullptr;
  call.y = y.mutable_data_ptr<float>();
  call.workspace = memory.mutable_data_ptr();
  RECORD_FUNCTION("tessera::_linear_product", std::vector<c10::IValue>({rows.view({call.rows, shape.in}), weight.detach().flatten(1).t()}));
  check_status(kernels::cpu::packed_map(call, torch_threads()));
  return y;
}

}  // namespace tessera
