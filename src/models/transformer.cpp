#include <cmath>

#include <ATen/ATen.h>
#include <torch/nn/init.h>

#include <tessera/models/transformer.h>
#include <tessera/ops/activation_checkpoint.h>

namespace tessera {
namespace {

/// One fused projection for queries, keys and values, under the names of torch.nn.MultiheadAttention.
class SelfAttention : public torch::nn::Module {
 public:
  SelfAttention(std::int64_t width, std::int64_t heads) : heads_(heads), out_proj_(width, width) {
    in_proj_weight_ = register_parameter("in_proj_weight", at::empty({3 * width, width}));
    in_proj_bias_ = register_parameter("in_proj_bias", at::zeros({3 * width}));
    register_module("out_proj", out_proj_);
    torch::nn::init::xavier_uniform_(in_proj_weight_);
    torch::nn::init::zeros_(out_proj_->bias);
  }

  at::Tensor forward(const at::Tensor& x, const AttentionMask& mask) {
    const std::vector<at::Tensor> qkv = at::linear(x, in_proj_weight_, in_proj_bias_).chunk(3, -1);
    return out_proj_(attend(qkv[0], qkv[1], qkv[2], heads_, mask));
  }

  void initialize(double attention_std, double projection_std) {
    torch::nn::init::normal_(in_proj_weight_, 0.0, attention_std);
    torch::nn::init::normal_(out_proj_->weight, 0.0, projection_std);
  }

 private:
  std::int64_t heads_;
  at::Tensor in_proj_weight_;
  at::Tensor in_proj_bias_;
  torch::nn::Linear out_proj_;
};

class Mlp : public torch::nn::Module {
 public:
  Mlp(std::int64_t width, std::int64_t hidden, std::string activation)
      : activation_(std::move(activation)), c_fc_(width, hidden), c_proj_(hidden, width) {
    register_module("c_fc", c_fc_);
    register_module("c_proj", c_proj_);
  }

  at::Tensor forward(const at::Tensor& x) { return c_proj_(activate(c_fc_(x), activation_)); }

  void initialize(double fc_std, double projection_std) {
    torch::nn::init::normal_(c_fc_->weight, 0.0, fc_std);
    torch::nn::init::normal_(c_proj_->weight, 0.0, projection_std);
  }

 private:
  std::string activation_;
  torch::nn::Linear c_fc_;
  torch::nn::Linear c_proj_;
};

class LayerScale : public torch::nn::Module {
 public:
  LayerScale(std::int64_t width, double start) : gamma_(register_parameter("gamma", at::full({width}, start))) {}
  at::Tensor forward(const at::Tensor& x) { return x * gamma_; }

 private:
  at::Tensor gamma_;
};

class ResidualBlock : public torch::nn::Module {
 public:
  ResidualBlock(const TransformerSettings& s, BlockInitialization initialization) {
    ln_1_ = register_module("ln_1", std::make_shared<LayerNorm>(s.width, s.norm_eps));
    attn_ = register_module("attn", std::make_shared<SelfAttention>(s.width, s.heads));
    ln_2_ = register_module("ln_2", std::make_shared<LayerNorm>(s.width, s.norm_eps));
    const auto hidden = static_cast<std::int64_t>(static_cast<double>(s.width) * s.mlp_ratio);
    mlp_ = register_module("mlp", std::make_shared<Mlp>(s.width, hidden, s.activation));
    if (s.layer_scale_init) {
      ls_1_ = register_module("ls_1", std::make_shared<LayerScale>(s.width, *s.layer_scale_init));
      ls_2_ = register_module("ls_2", std::make_shared<LayerScale>(s.width, *s.layer_scale_init));
    }
    if (initialization == BlockInitialization::text) {
      const double width = static_cast<double>(s.width);
      const double projection_std = 1.0 / std::sqrt(width * 2.0 * static_cast<double>(s.layers));
      attn_->initialize(1.0 / std::sqrt(width), projection_std);
      mlp_->initialize(1.0 / std::sqrt(2.0 * width), projection_std);
    }
  }

  at::Tensor forward(const at::Tensor& input, const AttentionMask& mask) {
    at::Tensor update = attn_->forward(ln_1_->forward(input), mask);
    const at::Tensor x = input + (ls_1_ ? ls_1_->forward(update) : update);
    update = mlp_->forward(ln_2_->forward(x));
    return x + (ls_2_ ? ls_2_->forward(update) : update);
  }

 private:
  std::shared_ptr<LayerNorm> ln_1_, ln_2_;
  std::shared_ptr<SelfAttention> attn_;
  std::shared_ptr<Mlp> mlp_;
  std::shared_ptr<LayerScale> ls_1_, ls_2_;
};

}  // namespace

std::optional<config::Problem> validate(const TransformerSettings& s) {
  if (s.width % s.heads != 0) return config::Problem{"heads", concat(s.heads, " does not divide width ", s.width)};
  return std::nullopt;
}

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

Transformer::Transformer(const TransformerSettings& settings, BlockInitialization initialization)
    : grad_checkpointing_(settings.grad_checkpointing) {
  register_module("resblocks", resblocks_);
  for (std::int64_t i = 0; i < settings.layers; ++i)
    resblocks_->push_back(std::make_shared<ResidualBlock>(settings, initialization));
}

at::Tensor Transformer::forward(at::Tensor x, const AttentionMask& mask, std::int64_t first) {
  const bool again = grad_checkpointing_ && is_training() && at::GradMode::is_enabled();
  for (std::int64_t i = first; i < std::ssize(*resblocks_); ++i) {
    auto& block = static_cast<ResidualBlock&>(*resblocks_[static_cast<std::size_t>(i)]);
    const auto forward = [&block, mask](const at::Tensor& y) { return block.forward(y, mask); };
    x = again ? recomputed(forward, x, block.parameters()) : forward(x);
  }
  return x;
}

std::optional<std::int64_t> Transformer::block_of(const std::string& parameter) {
  constexpr std::string_view kBlocks = "transformer.resblocks.";
  if (!parameter.starts_with(kBlocks)) return std::nullopt;
  return std::stoll(parameter.substr(kBlocks.size()));
}

}  // namespace tessera
