#pragma once

#include <memory>
#include <string>

#include "src/models/multi_head_attention.h"
#include <tessera/models/registry.h>

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

/// CLIP's attention pooling of ModifiedResNet (`attnpool`). The query is the mean of the tokens, and the keys and values are this mean and
/// the tokens. Position embeddings are added to the mean and to the tokens. If the encoder returns a class token (for region features), the
/// class token replaces the mean, and no position embeddings are added.
class AttentionPool2d : public ReadOut {
 public:
  AttentionPool2d(const AttentionPool2dSettings& settings, const ReadOutContext& context);
  ReadOutOutput forward(const Encoded& encoded, const ViewNeeds& needs) override;
  std::int64_t output_width() const override { return output_width_; }
  /// Returns a parameter's name in OpenCLIP, such as `attnpool.q_proj.weight`.
  std::string state_dict_key(const std::string& parameter) const override;
  at::Tensor adapt_weight(const std::string& name, const at::Tensor& stored) const override;

 private:
  std::int64_t output_width_;
  config::Size grid_;
  at::Tensor positional_embedding_;
  std::shared_ptr<MultiHeadAttention> attn_;
};

}  // namespace tessera
