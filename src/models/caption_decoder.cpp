#include <cmath>

#include <ATen/ATen.h>

#include "src/models/caption_decoder.h"
#include "src/models/room.h"
#include "src/models/token_embedding.h"
#include "src/models/transformer_block.h"
#include <tessera/base/error.h>

namespace tessera {
namespace {


/// A pre-norm block of self-attention, cross-attention to the memory, and an MLP. It is initialized like the text
/// transformer's blocks.
class DecoderBlock : public torch::nn::Module {
 public:
  DecoderBlock(const CaptionDecoderSettings& s, std::int64_t width) {
    const auto norm = [&](const char* name) {
      return register_module(name, std::make_shared<LayerNorm>(width, kNormEps));
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

  /// x [B * K, T, w]; memory [B, N, w].
  at::Tensor forward(at::Tensor x, const at::Tensor& memory, const AttentionMask& among, const AttentionMask& of_memory) {
    x = x + attn_->forward(ln_1_->forward(x), among);
    // The K sequences of an image share one attention call, so that the image's keys and values are computed once.
    const at::Tensor asking = ln_2_->forward(x).reshape({memory.size(0), -1, x.size(2)});
    x = x + cross_attn_->forward(asking, memory, of_memory).view_as(x);
    return x + mlp_->forward(ln_3_->forward(x), {});
  }

 private:
  std::shared_ptr<LayerNorm> ln_1_, ln_2_, ln_3_;
  std::shared_ptr<MultiHeadAttention> attn_, cross_attn_;
  std::shared_ptr<Mlp> mlp_;
};

}  // namespace

CaptionDecoder::CaptionDecoder(const CaptionDecoderSettings& settings, const at::Tensor& table, const std::string& path)
    : CaptionDecoder(settings, CaptionDecoderShape{.table = table}, path) {}

CaptionDecoder::CaptionDecoder(const CaptionDecoderSettings& settings, const CaptionDecoderShape& shape,
                               const std::string& path)
    : path_(path), context_length_(settings.context_length), table_(shape.table) {
  const std::int64_t width = table_.defined() ? table_.size(1) : shape.width;
  if (context_length_ > kMostTokens) user_error(path_, ".context_length is ", context_length_, ", more than ", kMostTokens);
  if (width % settings.heads != 0)
    user_error(path_, ".heads: ", settings.heads, " does not divide the width of the ",
               table_.defined() ? "text encoder's token table, " : "decoder, ", width);
  if (static_cast<double>(width) * settings.mlp_ratio < 1)
    user_error(path_, ".mlp_ratio: int(width * mlp_ratio) must be at least 1, but width is ", width);
  if (!table_.defined()) {
    const auto own = std::make_shared<TokenEmbedding>(shape.vocab_size, width);
    register_module("token_embedding", own);
    table_ = own->weight;
  }
  positional_embedding_ = register_parameter(
      "positional_embedding",
      settings.position_deviation * at::randn({settings.context_length + shape.more_places, width}));
  if (shape.memory_width != 0 && shape.memory_width != width)
    memory_projection_ = register_module("memory_projection", torch::nn::Linear(shape.memory_width, width));
  register_module("blocks", blocks_);
  for (std::int64_t i = 0; i < settings.layers; ++i)
    blocks_->push_back(std::make_shared<DecoderBlock>(settings, width));
  ln_final_ = register_module("ln_final", std::make_shared<LayerNorm>(width, kNormEps));
}

void CaptionDecoder::check_length(std::int64_t tokens) const {
  if (tokens > context_length_)
    user_error(path_, ".context_length is ", context_length_, ", but captions have up to ", tokens,
               " tokens: make it at least that many");
}

at::Tensor CaptionDecoder::embed(const at::Tensor& ids, const at::Tensor& mask) const {
  return zero_padding(at::embedding(table_, ids.masked_fill(mask.logical_not(), 0)), mask);
}

at::Tensor CaptionDecoder::run_blocks(at::Tensor x, const at::Tensor& memory, const at::Tensor& memory_mask, bool causal) {
  at::Tensor seen = zero_padding(memory, memory_mask);
  if (memory_projection_) seen = memory_projection_(seen);
  const AttentionMask among = causal ? causal_attention_mask({}, x.size(1)) : AttentionMask{};
  const AttentionMask of_memory = attention_mask(memory_mask, memory.size(1));
  for (const auto& block : *blocks_) x = static_cast<DecoderBlock&>(*block).forward(x, seen, among, of_memory);
  return ln_final_->forward(x);
}

at::Tensor CaptionDecoder::decode(const at::Tensor& x, const at::Tensor& memory, const at::Tensor& memory_mask, bool causal) {
  const std::int64_t expected = memory_projection_ ? memory_projection_->options.in_features() : width();
  TORCH_CHECK(memory.dim() == 3 && memory.size(0) > 0 && memory.size(2) == expected,
              "the caption decoder attends to tokens [B, N, ", expected, "], got ", memory.sizes());
  TORCH_CHECK(x.dim() == 3 && x.size(0) % memory.size(0) == 0 && x.size(1) <= places() && x.size(2) == width(),
              "the caption decoder takes sequences [B * K, T, w] with B = ", memory.size(0), ", T up to ", places(),
              " and w = ", width(), ", got ", x.sizes());
  return run_blocks(x + positional_embedding_.narrow(0, 0, x.size(1)), memory, memory_mask, causal);
}

at::Tensor CaptionDecoder::forward(const at::Tensor& ids, const at::Tensor& mask, const at::Tensor& groups) {
  TORCH_CHECK(ids.dim() == 2 && ids.size(1) >= 1, "the caption decoder takes ids [B, L], got ", ids.sizes());
  check_length(ids.size(1));
  TORCH_CHECK(groups.dim() == 3 && groups.size(0) == ids.size(0) && groups.size(2) == table_.size(1),
              "the caption decoder takes groups [B, K, w] = [", ids.size(0), ", K, ", table_.size(1),
              "], of the text encoder itself (projection none), got ", groups.sizes());
  const std::int64_t length = ids.size(1) - 1;
  const at::Tensor x = embed_tokens(table_, positional_embedding_, ids.narrow(1, 0, length), mask.narrow(1, 0, length));
  return run_blocks(x, groups, {}, /*causal=*/true);
}

}  // namespace tessera
