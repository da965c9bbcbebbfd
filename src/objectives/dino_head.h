#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>

#include <tessera/config/fields.h>

namespace tessera {

struct DinoHeadSettings {
  std::int64_t out_dim = 65536;
  std::int64_t layers = 3;
  std::int64_t hidden_dim = 2048;
  std::int64_t bottleneck_dim = 256;
  bool norm_last_layer = true;
};

template <class Visitor>
void fields(Visitor& v, DinoHeadSettings& s) {
  v("out_dim", s.out_dim, "K, number of outputs of the head (unlabeled classes)", config::at_least(1));
  v("layers", s.layers, "number of linear layers of the head's MLP", config::in_range(1, config::kMostCount));
  v("hidden_dim", s.hidden_dim, "hidden width of the head's MLP", config::at_least(1));
  v("bottleneck_dim", s.bottleneck_dim, "width of the MLP's output, whose rows are normalized to length 1",
    config::at_least(1));
  v("norm_last_layer", s.norm_last_layer, "true: the rows of the last layer keep length 1; false: their lengths are learned too");
}

/// The projection head of DINO (Caron et al. 2021, appendix C): an MLP with GELU, normalization of rows to length 1, and a last
/// layer without bias whose rows are weight_g * weight_v / |weight_v|. Parameters have the names of the authors' code: `mlp.0`,
/// `mlp.2`, ... (with one layer: `mlp`), `last_layer.weight_g` [K, 1], `last_layer.weight_v` [K, bottleneck_dim].
class DinoHead : public torch::nn::Module {
 public:
  /// `width` is the input's width. The weights of the MLP's linear layers are initialized from a normal distribution with standard
  /// deviation 0.02, their biases with 0.
  DinoHead(const DinoHeadSettings& settings, std::int64_t width);

  /// Maps x [R, width] to unit-norm rows [R, bottleneck_dim], in float32, or in float64 if x is float64.
  at::Tensor bottleneck(const at::Tensor& x);
  /// Returns the last layer's matrix [K, bottleneck_dim].
  at::Tensor last_layer() const;
  /// Returns logits [R, K], the last layer's output for bottleneck(x).
  at::Tensor forward(const at::Tensor& x);

 private:
  std::vector<torch::nn::Linear> mlp_;
  at::Tensor weight_g_, weight_v_;
};

}  // namespace tessera
