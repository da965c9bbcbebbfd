#include <ATen/ATen.h>

#include "src/models/per_sample_rng.h"
#include "src/models/position_embedding.h"
#include "src/models/room.h"
#include "src/models/text_group_encoder.h"
#include "src/models/token_embedding.h"
#include "src/models/transformer.h"

namespace tessera {
namespace {

constexpr std::string_view kTokenBlocks = "token_blocks.", kGroupBlocks = "group_blocks.";

TransformerSettings block_settings(const TextGroupEncoderSettings& s) {
  TransformerSettings out;
  out.width = s.width;
  out.layers = s.token_layers + s.group_layers;
  out.heads = s.heads;
  out.mlp_ratio = s.mlp_ratio;
  out.activation = s.activation;
  return out;
}

at::Tensor through_blocks(const torch::nn::ModuleList& blocks, const at::Tensor& x, const SequenceInfo& sequence) {
  ResidualStream stream = {x, {}};
  for (const auto& each : *blocks) {
    auto& block = static_cast<TransformerBlock&>(*each);
    std::optional<RowRngScope> scope;
    if (block.draws_for_tokens()) scope.emplace(token_keys(x.size(0), x.size(1), x.device()));
    stream = block.forward(stream, sequence);
  }
  return residual_sum(stream);
}

}  // namespace

std::optional<config::Problem> validate(const TextGroupEncoderSettings& s) {
  if (s.context_length > kMostTokens) return config::Problem{"context_length", concat("is ", s.context_length, ", more than ", kMostTokens)};
  if (s.num_groups > kMostTokens) return config::Problem{"num_groups", concat("is ", s.num_groups, ", more than ", kMostTokens)};
  return validate(block_settings(s));
}

TextGroupEncoder::TextGroupEncoder(const TextGroupEncoderSettings& settings) : settings_(settings) {
  const auto table = std::make_shared<TokenEmbedding>(settings.vocab_size, settings.width, settings.token_deviation);
  token_weight_ = table->weight;
  register_module<torch::nn::Module>("token_embedding", table);
  positional_embedding_ = register_parameter(
      "positional_embedding", settings.position_deviation * at::randn({settings.context_length, settings.width}));
  group_tokens_ = register_parameter("group_tokens", 0.02 * at::randn({settings.num_groups, settings.width}));
  register_module("token_blocks", token_blocks_);
  register_module("group_blocks", group_blocks_);
  const TransformerSettings block = block_settings(settings);
  for (std::int64_t i = 0; i < block.layers; ++i)
    (i < settings.token_layers ? token_blocks_ : group_blocks_)
        ->push_back(std::make_shared<TransformerBlock>(block, BlockInitialization::text));
  grouping_ = make_grouping_block(settings.grouping, {.width = settings.width,
                                                      .groups = settings.num_groups,
                                                      .output_groups = settings.num_groups,
                                                      .heads = settings.heads});
  register_module("grouping", grouping_);
  ln_final_ = register_module("ln_final", std::make_shared<LayerNorm>(settings.width, block.norm_eps));
}

at::Tensor TextGroupEncoder::encode_tokens(const at::Tensor& ids, const at::Tensor& mask) {
  TORCH_CHECK(ids.defined(), "text_group_encoder: takes token ids");
  TORCH_CHECK(ids.dim() == 2 && ids.size(1) >= 1 && ids.size(1) <= settings_.context_length,
              "text_group_encoder: ids must be [B, L] with 1 <= L <= ", settings_.context_length, ", got ",
              ids.sizes());
  const at::Tensor tokens = embed_tokens(token_weight_, positional_embedding_, ids, mask);
  const at::Tensor x = at::cat({tokens, group_tokens_.expand({ids.size(0), -1, -1})}, 1);
  at::Tensor keys;  // true for groups and real tokens; undefined if all tokens are real
  if (mask.defined()) keys = at::cat({mask, at::ones({mask.size(0), settings_.num_groups}, mask.options())}, 1);
  return through_blocks(token_blocks_, x, {self_attention_mask(keys, x.size(1))});
}

Grouped TextGroupEncoder::group(const at::Tensor& tokens_and_groups, const at::Tensor& mask, const at::Tensor& noise) {
  const std::int64_t length = tokens_and_groups.size(1) - settings_.num_groups;
  Grouped out =
      grouping_->forward(tokens_and_groups.slice(1, 0, length), tokens_and_groups.slice(1, length), mask, noise);
  out.groups = ln_final_->forward(through_blocks(group_blocks_, out.groups, {}));
  return out;
}

Encoded TextGroupEncoder::encode(const TowerInput& input) {
  const at::Tensor x = encode_tokens(input.ids, input.mask);
  const at::Tensor noise = grouping_->draw_noise(x.slice(1, 0, input.ids.size(1)));
  const Grouped grouped = group(x, input.mask, noise);
  Encoded out;
  out.tokens = grouped.groups;
  out.attention = grouped.soft_assignment;
  return out;
}

std::int64_t TextGroupEncoder::depth_of(const std::string& parameter) const {
  const auto block_of = [&](std::string_view blocks) { return std::stoll(parameter.substr(blocks.size())) + 1; };
  if (parameter.starts_with(kTokenBlocks)) return block_of(kTokenBlocks);
  if (parameter.starts_with(kGroupBlocks)) return settings_.token_layers + block_of(kGroupBlocks);
  if (parameter.starts_with("grouping.")) return settings_.token_layers;
  return parameter.starts_with("ln_final") ? depth() : 0;
}

at::Tensor TextGroupEncoder::adapt_weight(const std::string& name, const at::Tensor& stored) const {
  const bool resize =
      name == "positional_embedding" && stored.dim() == 2 && stored.size(1) == settings_.width && stored.size(0) > 0;
  return resize ? resize_text_position_embedding(stored, settings_.context_length) : stored;
}

}  // namespace tessera
