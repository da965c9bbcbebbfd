#include <cmath>

#include <ATen/ATen.h>

#include "src/models/token_embedding.h"
#include <tessera/base/error.h>
#include <tessera/models/caption_decoder.h>
#include <tessera/models/transformer_block.h>

namespace tessera {
namespace {

constexpr double kDecoderNormEps = 1e-5;

/// A pre-norm block of causal self-attention, attention to the groups, and an MLP; starts as the text transformer's.
class DecoderBlock : public torch::nn::Module {
 public:
  DecoderBlock(const CaptionDecoderSettings& s, std::int64_t width) {
    const auto norm = [&](const char* name) {
      return register_module(name, std::make_shared<LayerNorm>(width, kDecoderNormEps));
    };
    const double wide = static_cast<double>(width);
    const double projection_deviation = 1.0 / std::sqrt(wide * 2.0 * static_cast<double>(s.layers));
    const auto attention = [&](const char* name) {
      const auto out = register_module(
          name, std::make_shared<MultiHeadAttention>(MultiHeadAttentionSettings{.width = width, .heads = s.heads}));
      out->initialize(1.0 / std::sqrt(wide), projection_deviation);
      return out;
    };
    ln_1_ = norm("ln_1");
    attn_ = attention("attn");
    ln_2_ = norm("ln_2");
    cross_attn_ = attention("cross_attn");
    ln_3_ = norm("ln_3");
    mlp_ = register_module("mlp",
                           std::make_shared<Mlp>(MlpShape{.width = width,
                                                           .hidden = static_cast<std::int64_t>(wide * s.mlp_ratio),
                                                           .activation = s.activation}));
    mlp_->initialize(1.0 / std::sqrt(2.0 * wide), projection_deviation);
  }

  at::Tensor forward(at::Tensor x, const at::Tensor& groups, const AttentionMask& causal) {
    x = x + attn_->forward(ln_1_->forward(x), causal);
    x = x + cross_attn_->forward(ln_2_->forward(x), groups);
    return x + mlp_->forward(ln_3_->forward(x), {});
  }

 private:
  std::shared_ptr<LayerNorm> ln_1_, ln_2_, ln_3_;
  std::shared_ptr<MultiHeadAttention> attn_, cross_attn_;
  std::shared_ptr<Mlp> mlp_;
};

}  // namespace

CaptionDecoder::CaptionDecoder(const CaptionDecoderSettings& settings, const at::Tensor& table, const std::string& path)
    : path_(path), context_length_(settings.context_length), table_(table) {
  const std::int64_t width = table.size(1);
  if (width % settings.heads != 0)
    user_error(path_, ".heads: ", settings.heads, " does not divide the width of the text encoder's token table, ",
               width);
  positional_embedding_ = register_parameter("positional_embedding",
                                             settings.position_deviation * at::randn({settings.context_length, width}));
  register_module("blocks", blocks_);
  for (std::int64_t i = 0; i < settings.layers; ++i)
    blocks_->push_back(std::make_shared<DecoderBlock>(settings, width));
  ln_final_ = register_module("ln_final", std::make_shared<LayerNorm>(width, kDecoderNormEps));
}

at::Tensor CaptionDecoder::forward(const at::Tensor& ids, const at::Tensor& mask, const at::Tensor& groups) {
  TORCH_CHECK(ids.dim() == 2 && ids.size(1) >= 1, "the caption decoder takes ids [B, L], got ", ids.sizes());
  if (ids.size(1) > context_length_)
    user_error(path_, ".context_length is ", context_length_, ", but captions have up to ", ids.size(1),
               " tokens: make it at least as many");
  TORCH_CHECK(groups.dim() == 3 && groups.size(0) == ids.size(0) && groups.size(2) == table_.size(1),
              "the caption decoder takes groups [B, K, w] = [", ids.size(0), ", K, ", table_.size(1),
              "], of the text encoder itself (projection none), got ", groups.sizes());
  const std::int64_t length = ids.size(1) - 1;
  at::Tensor x = embed_tokens(table_, positional_embedding_, ids.narrow(1, 0, length), mask.narrow(1, 0, length));
  const AttentionMask causal = causal_attention_mask({}, length);
  for (const auto& block : *blocks_) x = static_cast<DecoderBlock&>(*block).forward(x, groups, causal);
  return ln_final_->forward(x);
}

}  // namespace tessera
