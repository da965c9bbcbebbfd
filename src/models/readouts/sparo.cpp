#include "src/models/readouts/sparo.h"

#include <cmath>
#include <map>
#include <optional>
#include <string>

#include <ATen/ATen.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/linear.h>

#include "src/models/add_module.h"
#include "src/models/attention.h"
#include "src/models/layers.h"
#include <tessera/ops/numeric.h>
#include <tessera/ops/slot_attention.h>

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

std::optional<config::Problem> validate(const SparoSettings& s) {
  if (s.slots % s.group_size != 0)
    return config::Problem{"group_size", concat(s.group_size, " does not divide slots ", s.slots)};
  if (s.share_values && s.value_width && *s.value_width != s.key_width)
    return config::Problem{"value_width", concat(*s.value_width, " needs share_values: false; shared values are the keys, ",
                                                 s.key_width, " wide")};
  return std::nullopt;
}

namespace {

constexpr std::string_view kSlotPrefix = "sparo.", kTextSlotPrefix = "text_sparo.";

struct KeyAndValue {
  std::string key, value;
};

// Returns pairs of parameter names in a whole model, for both towers: a parameter of the key projection and the corresponding parameter of
// the value projection.
std::vector<KeyAndValue> projection_names() {
  std::vector<KeyAndValue> out;
  for (const std::string& prefix : {concat("visual.", kSlotPrefix), std::string(kTextSlotPrefix)})
    for (const char* part : {"weight", "bias"}) out.push_back({concat(prefix, "k.", part), concat(prefix, "v.", part)});
  return out;
}

/// `sparo`: separate-head attention read-out (Vani et al. 2024, section 3; ablations in Table 6). Each of L slots is a single-head
/// attention with its own learned query over all tokens, including the class token. Then the same projection is applied to every slot.
/// slot_attention() computes the slots without storing [B, L, N, D].
class Sparo : public ReadOut {
 public:
  Sparo(const SparoSettings& s, const ReadOutContext& context)
      : settings_(s), prefix_(context.modality == Modality::image ? kSlotPrefix : kTextSlotPrefix) {
    const std::int64_t projections = s.slots / s.group_size, value_width = s.value_width.value_or(s.key_width),
                       heads_width = s.slots * value_width;
    const auto linear = [&](const char* name, std::int64_t in, std::int64_t out) {
      auto layer = register_module(name, torch::nn::Linear(torch::nn::LinearOptions(in, out).bias(s.bias)));
      if (s.bias) torch::nn::init::zeros_(layer->bias);
      return layer;
    };
    q_emb_ = register_parameter("q_emb", at::randn({1, projections, s.group_size, 1, s.key_width}));
    k_ = linear("k", context.width, projections * s.key_width);
    torch::nn::init::xavier_uniform_(k_->weight);
    if (!s.share_values) {
      v_ = linear("v", context.width, projections * value_width);
      torch::nn::init::xavier_uniform_(v_->weight);
    }
    if (s.cross_attention == "multi_head") out_proj_ = linear("out_proj", heads_width, heads_width);
    if (s.layer_norm != "none")
      ln_ = register_module("ln", std::make_shared<LayerNorm>(s.layer_norm == "slot" ? value_width : heads_width, kNormEps));
    proj_ =
        s.projection == "slot" ? linear("proj", value_width, s.slot_width) : linear("proj", heads_width, output_width());
  }

  /// Returns `slots` [B, L, V] without normalizing them, and `attention` [B, L, M] over the encoder's input positions. The attention to the
  /// class token is left out.
  ReadOutOutput forward(const Encoded& encoded, const ViewNeeds& needs) override {
    const std::int64_t projections = settings_.slots / settings_.group_size;
    const torch::nn::Linear& values = settings_.share_values ? k_ : v_;
    SlotAttentionInputs inputs{.tokens = encoded.with_class_token(),
                               .mask = encoded.mask_with_class_token(),
                               .queries = q_emb_.view({projections, settings_.group_size, settings_.key_width}),
                               .key_weight = k_->weight.unflatten(0, {projections, -1})};
    inputs.value_weight = settings_.share_values ? inputs.key_weight : v_->weight.unflatten(0, {projections, -1});
    if (settings_.bias) inputs.value_bias = values->bias.unflatten(0, {projections, -1});
    const auto [heads, attention] = slot_attention(inputs);

    at::Tensor slots = heads;  // [B, L, E]
    const auto apply = [&](bool to_all_together, const auto& layer) {
      slots = to_all_together ? layer(slots.flatten(1)).unflatten(1, {settings_.slots, -1}) : layer(slots);
    };
    if (!out_proj_.is_empty()) apply(true, [&](const at::Tensor& x) { return out_proj_(x); });
    if (ln_) apply(settings_.layer_norm == "full", [&](const at::Tensor& x) { return ln_->forward(x); });
    apply(settings_.projection == "full", [&](const at::Tensor& x) { return proj_(x); });
    slots = at_least_float(slots);

    ReadOutOutput out;
    out.embedding = settings_.normalize_slots ? concatenated_unit_slots(slots) : slots.flatten(1);
    if (needs.slots) out.slots = slots;
    if (needs.attention) {
      out.attention = encoded.class_token.defined() ? attention.slice(2, 1) : attention;  // [B, L, N]
      if (encoded.attention.defined()) out.attention = at::matmul(out.attention, encoded.attention);
    }
    return out;
  }

  std::int64_t output_width() const override { return settings_.slots * settings_.slot_width; }
  /// Returns a parameter's name in the reference code: `sparo.*` for images, `text_sparo.*` for texts.
  std::string state_dict_key(const std::string& parameter) const override { return prefix_ + parameter; }

 private:
  SparoSettings settings_;
  std::string prefix_;
  at::Tensor q_emb_;
  torch::nn::Linear k_{nullptr}, v_{nullptr}, out_proj_{nullptr}, proj_{nullptr};
  std::shared_ptr<LayerNorm> ln_;
};

}  // namespace

void add_sparo(ReadOutRegistry& list) {
  add_readout<Sparo, SparoSettings>(list, "sparo", "separately attended slots (projection none)");
}

at::Tensor concatenated_unit_slots(const at::Tensor& slots) {
  return unit_rows(at_least_float(slots)).flatten(1) / std::sqrt(static_cast<double>(slots.size(1)));
}

void add_value_copies(std::map<std::string, at::Tensor>& weights) {
  for (const auto& [key, value] : projection_names())
    if (const auto found = weights.find(key); found != weights.end()) weights.emplace(value, found->second);
}

void merge_value_copies(std::map<std::string, at::Tensor>& weights, const std::map<std::string, at::Tensor>& own,
                        const std::string& origin) {
  for (const auto& [key, value] : projection_names()) {
    if (!own.contains(key) || own.contains(value)) continue;
    const auto stored = weights.find(value);
    if (stored == weights.end()) continue;
    const auto [kept, alone] = weights.emplace(key, stored->second);
    if (!alone && !at::equal(kept->second, stored->second))
      user_error(origin, ": tensors ", key, " and ", value,
                 " differ, but the model's values are its keys: set share_values: false");
    weights.erase(stored);
  }
}

}  // namespace tessera
