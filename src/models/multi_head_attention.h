#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>

#include "src/models/attention.h"
#include "src/models/layers.h"
#include "src/models/rotary.h"
#include "src/ops/transformer_block.h"
#include <tessera/models/lora.h>

namespace tessera {

/// Returns the parameters of a linear map with autocast's copy of the weight.
MapParameters map_under_autocast(const at::Tensor& weight, const at::Tensor& bias);

struct MultiHeadAttentionSettings {
  std::int64_t width = 0;  // width of the queries
  std::int64_t heads = 1;
  std::int64_t key_width = 0;     // width of the tokens that keys and values are computed from; 0 means `width`
  std::int64_t inner_width = 0;   // total width of all heads, a multiple of `heads`; 0 means `width`
  std::int64_t output_width = 0;  // width of the result; 0 means `width`
  /// If true, the input projections are stored as three Linears `q_proj`, `k_proj` and `v_proj`. If false, they are stored as in
  /// torch.nn.MultiheadAttention. The bias is then `in_proj_bias`. If keys and queries have the same width, the weight is `in_proj_weight`
  /// (fused). If their widths differ, the weights are `q_proj_weight`, `k_proj_weight` and `v_proj_weight`.
  bool linears = false;
  /// Which biases a fused input projection has: all (one `in_proj_bias`), none, or some of `q_bias`, `k_bias` and `v_bias`. no_key (EVA,
  /// DINOv3), no_query and no_value each leave out one bias; query, key and value each keep only that bias.
  std::string input_bias = "all";
  bool output_bias = true;  // whether `out_proj` has a bias
  bool output = true;       // whether there is an `out_proj`; false: the result is the output of all heads
  std::int64_t key_heads = 0;   // heads of keys and values; each serves heads / key_heads heads of queries (Ainslie et al. 2023); 0: `heads`
  std::optional<double> score_scale;  // factor of the scores; nullopt: (width of a head)^-1/2
  std::string gate = "none";    // `gate`, a linear map of the input (plain, or biased) whose sigmoid multiplies the output of all heads
  bool query_key_norm = false;  // LayerNorm over each head's queries (`q_norm`) and keys (`k_norm`)
  bool inner_norm = false;      // LayerNorm `norm` on the output of all heads, before the last projection (EVA-02)
  double norm_eps = 1e-5;
  std::string norm_kind = "layer";
};

/// Multi-head attention with learned projections; the last projection is `out_proj`. In self-attention with a fused input projection, the
/// linear maps `query`, `key`, `value` and `out` may have adapters.
class MultiHeadAttention : public torch::nn::Module, public Adaptable {
 public:
  explicit MultiHeadAttention(const MultiHeadAttentionSettings& settings);

  /// Computes self-attention: x [B, N, width] -> [B, N, output_width], or if packed, [T, width] -> [T, output_width].
  at::Tensor forward(const at::Tensor& x, const AttentionMask& mask = {}, const Rotation& rotation = {});
  /// Computes attention to other tokens: query [B, N, width], or [1, N, width] if all rows have the same queries, and keys [B, K,
  /// key_width] -> [B, N, output_width].
  at::Tensor forward(const at::Tensor& query, const at::Tensor& keys, const AttentionMask& mask = {});

  /// Returns queries, keys and values of x [B, N, width], for blocks that replace the usual attention by another form (last_block.h). Each
  /// tensor is [B, N, inner width], and heads are contiguous slices of its width. Queries and keys are normalized and rotated. project()
  /// applies the gate, which reads the same x, and the last projection to the attention's result. The input projection must be fused
  /// (`in_proj_weight`).
  std::vector<at::Tensor> queries_keys_values(const at::Tensor& x, const Rotation& rotation = {}) const;
  at::Tensor project(const at::Tensor& attended, const at::Tensor& x);
  std::int64_t heads() const { return heads_; }
  /// Adds self-attention to the parts of a block that runs as one function. Returns false if such a function cannot run it: with adapters, an
  /// inner norm, or separate weights for queries, keys and values. The parts may be used only while this module exists.
  bool add_to(BlockParts& parts, const AttentionMask& mask, const Rotation& rotation) const;

  /// Redraws all weights from normal distributions; biases do not change.
  void initialize(double input_deviation, double output_deviation);
  /// Returns the weight and bias of queries, keys, values and output, in this order, as multi_head_attention() takes
  /// them. Throws c10::Error if there are adapters.
  std::vector<at::Tensor> projections() const;
  std::vector<LinearMap> linear_maps() const override;

 private:
  std::int64_t heads_;
  std::vector<at::Tensor> weights_;  // weights of queries, keys and values: one fused tensor, or three
  std::vector<at::Tensor> biases_;   // biases: one fused tensor, or three (undefined for a part without bias); empty if no part has a bias
  at::Tensor fused_projection(const at::Tensor& x) const;
  at::Tensor input_bias() const;
  bool changes_queries_or_keys(const Rotation& rotation) const {
    return query_norm_ || rotation.defined() || query_factor_ != 1 || key_heads_ != heads_;
  }
  /// Returns the parts of a tensor that has the queries, keys and values of each token one after another.
  std::vector<at::Tensor> split(const at::Tensor& qkv) const { return qkv.split_with_sizes({inner_, key_inner_, key_inner_}, -1); }
  std::vector<at::Tensor> prepared(std::vector<at::Tensor> qkv, const Rotation& rotation) const;

  std::int64_t key_heads_, inner_, key_inner_;  // heads of keys, and the widths of queries and of keys
  double query_factor_;                         // the queries' factor that makes score_scale of the usual scale
  std::shared_ptr<LayerNorm> query_norm_, key_norm_, inner_norm_;
  torch::nn::Linear gate_{nullptr}, out_proj_{nullptr};
};

/// Computes MultiHeadAttention from its weights, the eight tensors that MultiHeadAttention::projections() returns. It is for losses that
/// can process a batch block by block and recompute each block in the backward pass.
at::Tensor multi_head_attention(const at::Tensor& query, const at::Tensor& keys, at::TensorList projections,
                                std::int64_t heads, const AttentionMask& mask);

}  // namespace tessera
