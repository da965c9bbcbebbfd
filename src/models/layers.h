#pragma once

#include <string>

#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>

#include "src/ops/activation.h"
#include "src/ops/residual_norm.h"

namespace tessera {

/// Returns layer(x) for x [..., in]. On a GPU, a single operator computes the product and adds the bias; torch::nn::Linear adds the bias in
/// a second operator. For inference on the CPU, packed weights are used (src/ops/packed_weights.h).
at::Tensor linear(torch::nn::Linear& layer, const at::Tensor& x);

/// Returns norm(x) for a BatchNorm1d or BatchNorm2d. If the norm is frozen (its weight requires no gradient), its running statistics stay
/// unchanged and are used for the normalization.
template <class Norm>
at::Tensor batch_norm(Norm& norm, const at::Tensor& x);

constexpr double kNormEps = 1e-5;  // PyTorch's default

/// LayerNorm over the last dimension with biased variance, computed in float32 even under autocast. `kind` is a value of the transformers'
/// setting `norm`: layer; layer_no_bias; or rms, which divides by the root mean square (Zhang and Sennrich 2019) and has no bias either.
class LayerNorm : public torch::nn::Module {
 public:
  LayerNorm(std::int64_t width, double eps, const std::string& kind = "layer");
  at::Tensor forward(const at::Tensor& x);
  /// Normalizes a residual stream. Adds its update in the same pass.
  at::Tensor forward(const ResidualStream& stream);
  /// The parameters for kernels, which compute norms with a bias only (has_bias()).
  NormParameters norm_parameters() const { return {weight_, bias_, eps_}; }
  bool has_bias() const { return bias_.defined(); }
  const at::Tensor& weight() const { return weight_; }
  const at::Tensor& bias() const { return bias_; }
  /// Normalizes over the channels of a map [B, C, H, W]; the result is channels-last in memory.
  at::Tensor forward_map(const at::Tensor& map) { return forward(map.permute({0, 2, 3, 1})).permute({0, 3, 1, 2}); }

 private:
  at::Tensor weight_;
  at::Tensor bias_;
  double eps_;
  bool centers_;  // whether the mean is subtracted
};

/// A learned factor `gamma` per channel (Touvron et al. 2021), initially `start`.
class LayerScale : public torch::nn::Module {
 public:
  LayerScale(std::int64_t width, double start);
  at::Tensor forward(const at::Tensor& x) { return x * gamma_; }
  const at::Tensor& gamma() const { return gamma_; }

 private:
  at::Tensor gamma_;
};

}  // namespace tessera
