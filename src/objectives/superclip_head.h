#pragma once

#include <cstdint>
#include <vector>

#include <torch/nn/modules/linear.h>

#include "src/models/layers.h"

namespace tessera {

/// SuperCLIP's head, which classifies an image into words (arXiv 2512.14480). It takes the mean of the image's patches and applies residual
/// blocks x + proj(GELU(fc(norm(x)))), a norm, and a linear layer. The GELU is exact. The published models have no residual blocks.
/// Parameters `blocks.<n>.norm|fc|proj.*`, `norm.*`, `linear.weight` [V, W], `linear.bias` [V].
class SuperClipHead : public torch::nn::Module {
 public:
  SuperClipHead(std::int64_t width, std::int64_t vocab_size, std::int64_t layers, std::int64_t mlp_ratio);

  /// Returns the linear layer's input [B, W]. patches [B, P, W]: the encoder's tokens after its final norm, before its projection
  /// and without the class token. mask: bool [B, P], true for real patches; undefined if all are real.
  at::Tensor hidden(const at::Tensor& patches, const at::Tensor& mask = {});
  torch::nn::Linear& linear() { return linear_; }

 private:
  struct Block;
  std::vector<std::shared_ptr<Block>> blocks_;
  std::shared_ptr<LayerNorm> norm_;
  torch::nn::Linear linear_;
};

}  // namespace tessera
