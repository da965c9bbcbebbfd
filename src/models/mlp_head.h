#pragma once

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>

#include <tessera/config/fields.h>

namespace tessera {

/// GroupViT's head: one linear map, or two with batch norm and ReLU between them.
struct MlpHeadSettings {
  std::int64_t num_layers = 1;
  std::int64_t inner_dim = 4096;
  // Settings that users can set only for the projection `mlp`.
  std::string norm = "batch";
  std::string activation = "relu";
  bool hidden_bias = true;
  bool bias = true;
};

template <class Visitor>
void fields(Visitor& v, MlpHeadSettings& s) {
  v("num_layers", s.num_layers, "1: one linear map; 2: two, with batch norm and ReLU after the first (GroupViT)",
    config::in_range(1, 2));
  v("inner_dim", s.inner_dim, "width between the two layers", config::at_least(1));
}

/// GroupViT's head as a module. Its maps are `linear_out`, and with two layers also `linear_hidden.0` (linear) and `linear_hidden.1` (batch
/// norm, if any). In training, the batch norm's statistics are taken over all groups (or tokens) of all images or texts that this process
/// encodes at once, without missing ones and padding; with GradCache, over those of one chunk.
class MlpHead : public torch::nn::Module {
 public:
  MlpHead(const MlpHeadSettings& settings, std::int64_t width, std::int64_t output_dim);
  /// Maps [B, width] -> [B, output_dim], or [B, K, width] -> [B, K, output_dim].
  at::Tensor forward(const at::Tensor& x);

 private:
  std::string activation_;
  torch::nn::Linear hidden_{nullptr}, linear_out_;
  torch::nn::BatchNorm1d norm_{nullptr};
};

}  // namespace tessera
