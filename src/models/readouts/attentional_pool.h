#pragma once

#include <memory>
#include <string>

#include "src/models/layers.h"
#include "src/models/multi_head_attention.h"
#include <tessera/models/registry.h>

namespace tessera {

struct AttentionalPoolSettings {
  std::int64_t output_dim = 512;
  std::int64_t heads = 8;
  std::int64_t queries = 256;
  std::string pool = "first";
  bool project = true;
};

template <class Visitor>
void fields(Visitor& v, AttentionalPoolSettings& s) {
  v("output_dim", s.output_dim, "width of the queries and of the result", config::at_least(1));
  v("heads", s.heads, "attention heads; divides output_dim", config::at_least(1));
  v("queries", s.queries, "number of learned queries", config::at_least(1));
  v("pool", s.pool, "first: the first query's output; mean: the mean of all queries' outputs", config::one_of({"first", "mean"}));
  v("project", s.project, "whether the queries' outputs get a LayerNorm, and the pooled vector a square projection");
}

std::optional<config::Problem> validate(const AttentionalPoolSettings& settings);

/// CoCa's attentional pooler (Yu et al. 2022) as in OpenCLIP: learned queries attend to all tokens, including the class token. The pooler
/// has its own final norm (`ln_post`), so the settings are usually `final_norm: none` for the encoder and `projection: none` for the tower.
class AttentionalPool : public ReadOut {
 public:
  AttentionalPool(const AttentionalPoolSettings& settings, const ReadOutContext& context);
  /// `slots` are the queries' outputs [B, queries, output_dim].
  ReadOutOutput forward(const Encoded& encoded, const ViewNeeds& needs) override;
  std::int64_t output_width() const override { return settings_.output_dim; }
  /// Returns a parameter's name in OpenCLIP: `attn_pool.*`, except for `ln_post.*` and `proj`, which belong to the tower itself.
  std::string state_dict_key(const std::string& parameter) const override;

 private:
  AttentionalPoolSettings settings_;
  at::Tensor query_;
  std::shared_ptr<LayerNorm> ln_q_, ln_k_, ln_post_;
  std::shared_ptr<MultiHeadAttention> attn_;
  at::Tensor proj_;
};

}  // namespace tessera
