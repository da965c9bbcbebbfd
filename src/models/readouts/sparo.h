#pragma once

#include <map>
#include <optional>
#include <string>

#include <torch/nn/modules/linear.h>

#include "src/models/layers.h"
#include <tessera/models/registry.h>

namespace tessera {

struct SparoSettings {
  std::int64_t slots = 64;
  std::int64_t slot_width = 64;
  std::int64_t key_width = 64;
  std::int64_t group_size = 1;
  bool bias = true;
  bool share_values = true;
  std::optional<std::int64_t> value_width;
  std::string cross_attention = "separate_head";
  std::string layer_norm = "none";
  std::string projection = "slot";
  bool normalize_slots = true;
};

template <class Visitor>
void fields(Visitor& v, SparoSettings& s) {
  v("slots", s.slots,
    "L, the number of vectors that attend to the tokens separately (paper: 64 on Conceptual Captions, 128 on LAION)",
    config::at_least(1));
  v("slot_width", s.slot_width, "V, width of a slot; the embedding is slots * slot_width wide", config::at_least(1));
  v("key_width", s.key_width, "D, width of keys and queries", config::at_least(1));
  v("group_size", s.group_size, "number of slots that share a key projection; divides slots", config::at_least(1));
  v("bias", s.bias, "whether the linear maps have biases");
  v("share_values", s.share_values, "use a slot's keys as its values");
  v("value_width", s.value_width, "width of the values if share_values is false; null: key_width", config::at_least(1));
  v("cross_attention", s.cross_attention,
    "separate_head: slots stay separate; multi_head: a linear map over all of them follows, as in multi-head attention",
    config::one_of({"separate_head", "multi_head"}));
  v("layer_norm", s.layer_norm, "none; slot: over each slot, with the same weights; full: over all slots together",
    config::one_of({"none", "slot", "full"}));
  v("projection", s.projection, "slot: one map to slot_width, applied to each slot; full: one map of all slots together",
    config::one_of({"slot", "full"}));
  v("normalize_slots", s.normalize_slots,
    "normalize each slot of the embedding to length 1, so that a cosine is the slots' mean cosine (DINO: false)");
}

std::optional<config::Problem> validate(const SparoSettings& settings);

/// `sparo`: separate-head attention read-out (Vani et al. 2024, section 3; ablations in Table 6). Each of L slots is a single-head
/// attention with its own learned query over all tokens, including the class token. Then the same projection is applied to every slot.
/// slot_attention() computes the slots without storing [B, L, N, D].
class Sparo : public ReadOut {
 public:
  Sparo(const SparoSettings& settings, const ReadOutContext& context);
  /// Returns `slots` [B, L, V] without normalizing them, and `attention` [B, L, M] over the encoder's input positions. The attention to the
  /// class token is left out.
  ReadOutOutput forward(const Encoded& encoded, const ViewNeeds& needs) override;
  std::int64_t output_width() const override { return settings_.slots * settings_.slot_width; }
  /// Returns a parameter's name in the reference code: `sparo.*` for images, `text_sparo.*` for texts.
  std::string state_dict_key(const std::string& parameter) const override { return prefix_ + parameter; }
  const SparoSettings& settings() const { return settings_; }

 private:
  SparoSettings settings_;
  std::string prefix_;
  at::Tensor q_emb_;
  torch::nn::Linear k_{nullptr}, v_{nullptr}, out_proj_{nullptr}, proj_{nullptr};
  std::shared_ptr<LayerNorm> ln_;
};

/// Normalizes each slot to length 1, concatenates the slots and divides by sqrt(L), so that the dot product of two such vectors is the mean
/// of their slots' cosines (SPARO, eq. 2). slots [B, L, V] -> [B, L V]; a zero slot stays zero.
at::Tensor concatenated_unit_slots(const at::Tensor& slots);

/// If a model uses its keys as values, it stores only `k.*`, but the reference code's files store the same weights again as `v.*`. Adds the
/// missing `v.*` to `weights`, as tensors that share memory with `k.*`.
void add_value_copies(std::map<std::string, at::Tensor>& weights);

/// The inverse of add_value_copies(). `weights` are a file's tensors, and `own` is the model's state_dict. If `own` has no `v.*`, renames
/// `v.*` in `weights` to `k.*`. If `weights` already has an equal `k.*`, only removes `v.*`. Throws UserError naming `origin` if `k.*`
/// differs.
void merge_value_copies(std::map<std::string, at::Tensor>& weights, const std::map<std::string, at::Tensor>& own,
                        const std::string& origin);

}  // namespace tessera
