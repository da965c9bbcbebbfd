#include <ATen/ATen.h>
#include <torch/nn/modules/container/modulelist.h>

#include "src/objectives/superclip_head.h"

namespace tessera {

namespace {

constexpr double kEpsilon = 1e-5;

// Returns the mean of each image's real patches; 0 for an image without a real patch.
at::Tensor mean_of_patches(const at::Tensor& patches, const at::Tensor& mask) {
  if (!mask.defined()) return patches.mean(1);
  const at::Tensor count = mask.sum(1, /*keepdim=*/true).clamp_min(1).to(patches.scalar_type());
  return patches.masked_fill(~mask.unsqueeze(2), 0).sum(1) / count;
}

}  // namespace

struct SuperClipHead::Block : torch::nn::Module {
  Block(std::int64_t width, std::int64_t hidden)
      : norm(register_module("norm", std::make_shared<LayerNorm>(width, kEpsilon))),
        fc(register_module("fc", torch::nn::Linear(width, hidden))),
        proj(register_module("proj", torch::nn::Linear(hidden, width))) {}
  at::Tensor forward(const at::Tensor& x) { return x + proj(at::gelu(fc(norm->forward(x)))); }

  std::shared_ptr<LayerNorm> norm;
  torch::nn::Linear fc, proj;
};

SuperClipHead::SuperClipHead(std::int64_t width, std::int64_t vocab_size, std::int64_t layers, std::int64_t mlp_ratio)
    : linear_(width, vocab_size) {
  const auto list = register_module("blocks", torch::nn::ModuleList());
  for (std::int64_t i = 0; i < layers; ++i) {
    blocks_.push_back(std::make_shared<Block>(width, mlp_ratio * width));
    list->push_back(blocks_.back());
  }
  norm_ = register_module("norm", std::make_shared<LayerNorm>(width, kEpsilon));
  register_module("linear", linear_);
}

at::Tensor SuperClipHead::hidden(const at::Tensor& patches, const at::Tensor& mask) {
  at::Tensor x = mean_of_patches(patches, mask);
  for (const auto& block : blocks_) x = block->forward(x);
  return norm_->forward(x);
}

}  // namespace tessera
