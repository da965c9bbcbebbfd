#pragma once

#include <ATen/ATen.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/linear.h>

namespace tessera {

/// Standard deviation of GroupViT's initial weights.
inline constexpr double kGroupVitDeviation = 0.02;

/// Returns a linear map whose weights are drawn from a normal distribution. Biases, if any, are 0.
inline torch::nn::Linear normal_linear(std::int64_t in, std::int64_t out, double deviation = kGroupVitDeviation,
                                       bool bias = true) {
  torch::nn::Linear layer(torch::nn::LinearOptions(in, out).bias(bias));
  torch::nn::init::normal_(layer->weight, 0.0, deviation);
  if (bias) torch::nn::init::zeros_(layer->bias);
  return layer;
}

/// Two linear maps under timm's names, `fc1` and `fc2`, with an exact GELU between them.
class FcMlp : public torch::nn::Module {
 public:
  FcMlp(std::int64_t in, std::int64_t hidden, std::int64_t out)
      : fc1_(register_module("fc1", normal_linear(in, hidden))),
        fc2_(register_module("fc2", normal_linear(hidden, out))) {}
  at::Tensor forward(const at::Tensor& x) { return fc2_(at::gelu(fc1_(x))); }
  /// Applies the maps to the middle axis: x [B, in, d] -> [B, out, d].
  at::Tensor forward_groups(const at::Tensor& x) { return forward(x.mT()).mT(); }

 private:
  torch::nn::Linear fc1_, fc2_;
};

}  // namespace tessera
