#include <ATen/ATen.h>

#include <tessera/models/attention.h>
#include <tessera/models/layers.h>

namespace tessera {

at::Tensor activate(const at::Tensor& x, const std::string& activation) {
  if (activation == "gelu") return at::gelu(x);
  if (activation == "gelu_tanh") return at::gelu(x, "tanh");
  if (activation == "silu") return at::silu(x);
  if (activation == "relu") return at::relu(x);
  TORCH_CHECK(activation == "quick_gelu", "no activation named ", activation);
  return x * at::sigmoid(1.702 * x);
}

at::Tensor linear(torch::nn::Linear& layer, const at::Tensor& x) {
  // at::linear() adds the bias inside the product, so it can round differently from layer(x). The CPU keeps layer(x), with which all
  // published results were measured.
  return x.is_cuda() ? at::linear(x, layer->weight, layer->bias) : layer(x);
}

template <class Norm>
at::Tensor batch_norm(Norm& norm, const at::Tensor& x) {
  if (norm->weight.requires_grad()) return norm(x);
  return at::batch_norm(x, norm->weight, norm->bias, norm->running_mean, norm->running_var, /*training=*/false,
                        /*momentum=*/0.0, norm->options.eps(), at::globalContext().userEnabledCuDNN());
}
template at::Tensor batch_norm(torch::nn::BatchNorm1d&, const at::Tensor&);
template at::Tensor batch_norm(torch::nn::BatchNorm2d&, const at::Tensor&);

LayerNorm::LayerNorm(std::int64_t width, double eps)
    : weight_(register_parameter("weight", at::ones({width}))),
      bias_(register_parameter("bias", at::zeros({width}))),
      eps_(eps) {}

at::Tensor LayerNorm::forward(const at::Tensor& x) {
  return at::layer_norm(at_least_float(x), weight_.sizes(), at_least_float(weight_), at_least_float(bias_), eps_);
}

LayerScale::LayerScale(std::int64_t width, double start)
    : gamma_(register_parameter("gamma", at::full({width}, start))) {}

}  // namespace tessera
