#include <cmath>

#include <ATen/ATen.h>
#include <torch/nn/init.h>

#include "src/models/attention.h"
#include "src/models/readouts/sparo.h"
#include <tessera/ops/numeric.h>
#include <tessera/ops/slot_attention.h>

namespace tessera {
namespace {

constexpr std::string_view kImagePrefix = "sparo.", kTextPrefix = "text_sparo.";

struct KeyAndValue {
  std::string key, value;
};

// Returns pairs of parameter names in a whole model, for both towers: a parameter of the key projection and the corresponding parameter of
// the value projection.
std::vector<KeyAndValue> projection_names() {
  std::vector<KeyAndValue> out;
  for (const std::string& prefix : {concat("visual.", kImagePrefix), std::string(kTextPrefix)})
    for (const char* part : {"weight", "bias"}) out.push_back({concat(prefix, "k.", part), concat(prefix, "v.", part)});
  return out;
}

}  // namespace

std::optional<config::Problem> validate(const SparoSettings& s) {
  if (s.slots % s.group_size != 0)
    return config::Problem{"group_size", concat(s.group_size, " does not divide slots ", s.slots)};
  if (s.share_values && s.value_width && *s.value_width != s.key_width)
    return config::Problem{"value_width", concat(*s.value_width, " needs share_values: false; shared values are the keys, ",
                                                 s.key_width, " wide")};
  return std::nullopt;
}

Sparo::Sparo(const SparoSettings& s, const ReadOutContext& context)
    : settings_(s), prefix_(context.modality == Modality::image ? kImagePrefix : kTextPrefix) {
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
    ln_ = register_module("ln", std::make_shared<LayerNorm>(s.layer_norm == "slot" ? value_width : heads_width, 1e-5));
  proj_ =
      s.projection == "slot" ? linear("proj", value_width, s.slot_width) : linear("proj", heads_width, output_width());
}

ReadOutOutput Sparo::forward(const Encoded& encoded, const ViewNeeds& needs) {
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
