#include <ATen/ATen.h>

#include "src/ops/activation.h"

namespace tessera {
namespace {

constexpr double kQuickGelu = 1.702;

}  // namespace

at::Tensor activate(const at::Tensor& x, const std::string& activation) {
  if (activation == "gelu") return at::gelu(x);
  if (activation == "gelu_tanh") return at::gelu(x, "tanh");
  if (activation == "silu") return at::silu(x);
  if (activation == "relu") return at::relu(x);
  TORCH_CHECK(activation == "quick_gelu", "no activation named ", activation);
  return x * at::sigmoid(kQuickGelu * x);
}

at::Tensor activate_backward(const at::Tensor& gradient, const at::Tensor& x, const std::string& activation) {
  if (activation == "gelu") return at::gelu_backward(gradient, x);
  if (activation == "gelu_tanh") return at::gelu_backward(gradient, x, "tanh");
  if (activation == "silu") return at::silu_backward(gradient, x);
  if (activation == "relu") return at::threshold_backward(gradient, x, 0);
  const at::Tensor gate = at::sigmoid(kQuickGelu * x);
  return (gradient * gate).add_(at::sigmoid_backward(gradient * x, gate).mul_(kQuickGelu));
}

}  // namespace tessera
