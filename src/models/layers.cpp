#include <ATen/ATen.h>

#include <tessera/models/attention.h>
#include <tessera/models/layers.h>

namespace tessera {

at::Tensor activate(const at::Tensor& x, const std::string& activation) {
  if (activation == "gelu") return at::gelu(x);
  if (activation == "gelu_tanh") return at::gelu(x, "tanh");
  TORCH_CHECK(activation == "quick_gelu", "no activation named ", activation);
  return x * at::sigmoid(1.702 * x);
}

LayerNorm::LayerNorm(std::int64_t width, double eps)
    : weight_(register_parameter("weight", at::ones({width}))),
      bias_(register_parameter("bias", at::zeros({width}))),
      eps_(eps) {}

at::Tensor LayerNorm::forward(const at::Tensor& x) {
  return at::layer_norm(at_least_float(x), weight_.sizes(), weight_, bias_, eps_);
}

LayerScale::LayerScale(std::int64_t width, double start)
    : gamma_(register_parameter("gamma", at::full({width}, start))) {}

}  // namespace tessera
