#include <cmath>
#include <memory>
#include <string>

#include <ATen/ATen.h>

#include "src/models/add_module.h"
#include "src/models/multi_head_attention.h"
#include "src/models/position_embedding.h"

namespace tessera {

struct AttentionPool2dSettings {
  std::int64_t heads = 32;
  std::int64_t output_dim = 1024;
};

template <class Visitor>
void fields(Visitor& v, AttentionPool2dSettings& s) {
  v("heads", s.heads, "attention heads; divides the token width", config::at_least(1));
  v("output_dim", s.output_dim, "width of the result (OpenCLIP's embed_dim)", config::at_least(1));
}

namespace {

/// CLIP's attention pooling of ModifiedResNet (`attnpool`). The query is the mean of the tokens, and the keys and values are this mean and
/// the tokens. Position embeddings are added to the mean and to the tokens. If the encoder returns a class token (for region features), the
/// class token replaces the mean, and no position embeddings are added.
class AttentionPool2d : public ReadOut {
 public:
  AttentionPool2d(const AttentionPool2dSettings& settings, const ReadOutContext& context)
      : output_width_(settings.output_dim), grid_(context.grid) {
    if (context.tokens == 0 || context.modality == Modality::text)
      user_error(context.path, ": attention_pool_2d needs an image encoder with a fixed number of tokens");
    if (context.width % settings.heads != 0)
      user_error(context.path, ".heads: ", settings.heads, " does not divide the token width ", context.width);
    const double deviation = 1.0 / std::sqrt(static_cast<double>(context.width));
    positional_embedding_ =
        register_parameter("positional_embedding", deviation * at::randn({context.tokens + 1, context.width}));
    const MultiHeadAttentionSettings attention{
        .width = context.width, .heads = settings.heads, .output_width = settings.output_dim, .linears = true};
    attn_ = register_module("attn", std::make_shared<MultiHeadAttention>(attention));
    attn_->initialize(deviation, deviation);
  }

  ReadOutOutput forward(const Encoded& encoded, const ViewNeeds& /*needs*/) override {
    at::Tensor x;  // [B, 1 + N, w]
    if (encoded.class_token.defined()) {
      x = at_least_float(encoded.with_class_token());
    } else {
      TORCH_CHECK(!encoded.mask.defined(), "attention_pool_2d: padding needs a class token");
      x = at_least_float(encoded.tokens);
      x = at::cat({x.mean(1, /*keepdim=*/true), x}, 1) + positional_embedding_;
    }
    const AttentionMask mask = attention_mask(encoded.mask_with_class_token(), x.size(1));
    return {attn_->forward(x.slice(1, 0, 1), x, mask).squeeze(1), {}, {}};
  }

  std::int64_t output_width() const override { return output_width_; }

  /// Returns a parameter's name in OpenCLIP, such as `attnpool.q_proj.weight`.
  std::string state_dict_key(const std::string& parameter) const override {
    constexpr std::string_view kAttention = "attn.", kOutput = "attn.out_proj.";
    if (parameter.starts_with(kOutput)) return concat("attnpool.c_proj.", parameter.substr(kOutput.size()));
    if (parameter.starts_with(kAttention)) return concat("attnpool.", parameter.substr(kAttention.size()));
    return "attnpool." + parameter;
  }

  at::Tensor adapt_weight(const std::string& name, const at::Tensor& stored) const override {
    return name == "positional_embedding" ? fit_position_embedding(stored, grid_, 1, positional_embedding_.size(1))
                                          : stored;
  }

 private:
  std::int64_t output_width_;
  config::Size grid_;
  at::Tensor positional_embedding_;
  std::shared_ptr<MultiHeadAttention> attn_;
};

}  // namespace

void add_attention_pool_2d(ReadOutRegistry& list) {
  add_readout<AttentionPool2d, AttentionPool2dSettings>(list, "attention_pool_2d", "attention pooling of modified_resnet");
}

}  // namespace tessera
