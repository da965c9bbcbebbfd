#include <algorithm>
#include <cmath>

#include <ATen/ATen.h>

#include "src/models/position_embedding.h"
#include "src/models/room.h"
#include "src/models/text_transformer.h"
#include "src/models/token_embedding.h"
#include <tessera/base/error.h>

namespace tessera {
namespace {

// Returns sines and cosines [rows, width] of the positions from `first` on, as fairseq does. Periods range from 2 pi to
// 10,000 times 2 pi.
at::Tensor sinusoidal_positions(std::int64_t first, std::int64_t rows, std::int64_t width, const at::Device& device) {
  constexpr double kSlowest = 10000.0;
  const auto options = at::TensorOptions(at::kFloat).device(device);
  const double step = std::log(kSlowest) / static_cast<double>(width / 2 - 1);
  const at::Tensor angles = at::outer(at::arange(first, first + rows, options), at::exp(at::arange(width / 2, options) * -step));
  return at::cat({angles.sin(), angles.cos()}, 1);
}

// Returns the bucket of each distance (key's place minus query's place), int64 [length, length]. Of the buckets of one direction, the first
// half is for single distances, and the others are for ranges whose limits grow exponentially up to `farthest` (Raffel et al. 2020, T5).
at::Tensor distance_buckets(std::int64_t length, std::int64_t buckets, std::int64_t farthest, const at::Device& device) {
  const std::int64_t half = buckets / 2, single = half / 2;
  const at::Tensor place = at::arange(length, at::TensorOptions(device).dtype(at::kLong));
  const at::Tensor distance = place - place.unsqueeze(1), away = distance.abs();
  const double range = std::log(static_cast<double>(farthest) / static_cast<double>(single));
  const at::Tensor ranges =
      (at::log(away.clamp_min(1).to(at::kFloat) / static_cast<double>(single)) / range * static_cast<double>(half - single)).to(at::kLong);
  return at::where(away < single, away, (single + ranges).clamp_max(half - 1)) + distance.gt(0).to(at::kLong) * half;
}

}  // namespace

std::optional<config::Problem> validate(const TextTransformerSettings& s) {
  if (s.context_length > kMostTokens) return config::Problem{"context_length", concat("is ", s.context_length, ", more than ", kMostTokens)};
  if (s.class_token != "none" && (s.attention != "causal" || s.final_norm == "none"))
    return config::Problem{"class_token", "needs causal texts and a final norm: set attention: causal"};
  const bool sines = s.position_embedding == "sinusoidal", learned = s.position_embedding == "learned", rotary = s.position_embedding == "rotary";
  if (sines && (s.width % 2 != 0 || s.width < 4)) return config::Problem{"position_embedding", "sinusoidal needs an even width of at least 4"};
  if (rotary && head_width(s) % 2 != 0)
    return config::Problem{"position_embedding", concat("rotary turns pairs of channels, but heads are ", head_width(s), " wide")};
  if (s.position_embedding == "relative" && s.attention == "causal")
    return config::Problem{"position_embedding", "relative has biases for later tokens, which causal attention does not see: set attention: bidirectional"};
  if (s.position_embedding == "relative" && s.relative_distance <= s.relative_buckets / 4)
    return config::Problem{"relative_distance", concat("must be above a quarter of relative_buckets, ", s.relative_buckets / 4)};
  if (s.local && !s.local->blocks.empty() && *std::ranges::max_element(s.local->blocks) >= s.layers)
    return config::Problem{"local", concat("blocks has ", *std::ranges::max_element(s.local->blocks), ", but there are ", s.layers, " layers, from 0")};
  if (!learned && (s.position_rows || (!sines && s.position_offset > 0)))
    return config::Problem{"position_rows", "and position_offset belong to a table of learned positions: leave them at their defaults"};
  if (s.class_token != "none" && (!learned || s.local || s.position_rows || s.position_offset > 0 || s.token_types > 0 || s.pre_norm || s.embedding_scale != 1))
    return config::Problem{"class_token", "is only for texts with CLIP's embeddings: leave position_embedding, position_rows, "
                                          "position_offset, token_types, embedding_scale and pre_norm at their defaults"};
  if (learned && s.position_rows.value_or(s.context_length) < s.position_offset + s.context_length)
    return config::Problem{"position_rows", concat("must be at least position_offset + context_length = ", s.position_offset + s.context_length)};
  if (s.kept_positions && (!learned || s.position_rows || s.position_offset > 0 || s.class_token != "none"))
    return config::Problem{"kept_positions", "is only for learned positions as CLIP has them: leave position_embedding, position_rows, "
                                             "position_offset and class_token at their defaults"};
  return validate(static_cast<const TransformerSettings&>(s));
}

TextTransformer::TextTransformer(const TextTransformerSettings& settings) : settings_(settings) {
  const auto table = std::make_shared<TokenEmbedding>(settings.vocab_size, settings.width);
  token_weight_ = table->weight;
  token_embedding_ = register_module<torch::nn::Module>("token_embedding", table);
  const std::int64_t places = settings.position_rows.value_or(settings.context_length + (has_class_token() ? 1 : 0));
  constexpr double kDeviation = 0.01;
  if (settings.position_embedding == "learned")
    positional_embedding_ = register_parameter("positional_embedding", kDeviation * at::randn({places, settings.width}));
  if (settings.token_types > 0)
    type_embedding_ = register_parameter("type_embedding", kTokenDeviation * at::randn({settings.token_types, settings.width}));
  if (settings.position_embedding == "relative")
    relative_bias_ = register_parameter("relative_bias", kTokenDeviation * at::randn({settings.relative_buckets, settings.heads}));
  if (settings.pre_norm) ln_pre_ = register_module("ln_pre", std::make_shared<LayerNorm>(settings.width, settings.norm_eps, settings.norm));
  if (has_class_token()) class_embedding_ = register_parameter("cls_emb", kDeviation * at::randn({settings.width}));
  transformer_ = register_module("transformer", std::make_shared<Transformer>(settings, BlockInitialization::text));
  if (settings.final_norm != "none")
    ln_final_ = register_module("ln_final", std::make_shared<LayerNorm>(settings.width, settings.norm_eps, settings.norm));
}

Encoded TextTransformer::encode(const TowerInput& input) {
  const at::Tensor &ids = input.ids, &mask = input.mask;
  TORCH_CHECK(ids.defined(), "text_transformer: takes token ids");
  TORCH_CHECK(ids.dim() == 2 && ids.size(1) >= 1 && ids.size(1) <= settings_.context_length,
              "text_transformer: ids must be [B, L] with 1 <= L <= ", settings_.context_length, ", got ", ids.sizes());
  if (has_class_token()) return encode_with_class_token(ids, mask);
  const std::int64_t length = ids.size(1);
  const PackedRows rows = settings_.skip_padding ? packed_rows(mask, input.lengths) : PackedRows{};
  at::Tensor x = rows.defined() ? embed_packed_tokens(token_weight_, positions(length), ids, rows, settings_.embedding_scale)
                                : embed_tokens(token_weight_, positions(length), ids, mask, settings_.embedding_scale);
  if (ln_pre_) x = ln_pre_->forward(x);
  x = finish(transformer_->run(x, sequence_info(mask, length, rows)));
  Encoded out;
  out.tokens = rows.defined() ? unpack(x, rows) : zero_padding(x, mask);
  out.mask = mask;
  out.ids = ids;
  return out;
}

SequenceInfo TextTransformer::sequence_info(const at::Tensor& mask, std::int64_t length, const PackedRows& rows) const {
  const bool causal = settings_.attention == "causal";
  const at::Device device = token_weight_.device();
  const at::Tensor bias = score_bias(length);
  // Attention to all tokens, or to those at most `window` places away. Without a bias and a window, faster kernels need no explicit mask.
  const auto attention = [&](std::int64_t window) {
    AttentionMask out;
    if (bias.defined() || (window > 0 && window < length - 1))
      out = placed_attention_mask(mask, length, bias, window, causal, device);
    else if (!rows.defined())
      return causal ? causal_attention_mask(mask, length) : self_attention_mask(mask, length);
    else
      out.causal = causal;
    out.packed = rows;
    return out;
  };
  const auto rotation = [&](double base) {
    if (settings_.position_embedding != "rotary") return Rotation{};
    Rotation out = rotation_of_line(base, settings_.rotary_pairs == "halves", length, head_width(settings_), device);
    if (!rows.defined()) return out;
    for (at::Tensor* each : {&out.cosine, &out.sine}) *each = at::embedding(*each, rows.places.remainder(length));
    return out;
  };
  SequenceInfo out;
  out.mask = attention(0);
  out.rotation = rotation(settings_.rotary_base);
  if (!settings_.local) return out;
  auto local = std::make_shared<SequenceInfo>();
  local->mask = attention(settings_.local->window);
  local->rotation = rotation(settings_.local->rotary_base);
  out.local = local;
  out.local_blocks = settings_.local->blocks;
  return out;
}

at::Tensor TextTransformer::score_bias(std::int64_t length) const {
  if (!relative_bias_.defined()) return {};
  const at::Tensor buckets = distance_buckets(length, settings_.relative_buckets, settings_.relative_distance, relative_bias_.device());
  return at::embedding(relative_bias_, buckets).permute({2, 0, 1}).unsqueeze(0).contiguous();
}

at::Tensor TextTransformer::finish(const ResidualStream& last) {
  return settings_.final_norm == "tokens" ? ln_final_->forward(last) : residual_sum(last);
}

at::Tensor TextTransformer::positions(std::int64_t length) const {
  const std::int64_t first = settings_.position_offset;
  at::Tensor places;
  if (positional_embedding_.defined()) places = positional_embedding_.slice(0, first);
  if (settings_.position_embedding == "sinusoidal") places = sinusoidal_positions(first, length, settings_.width, token_weight_.device());
  if (!type_embedding_.defined()) return places;
  return places.defined() ? places + type_embedding_[0] : type_embedding_.slice(0, 0, 1).expand({length, -1});
}

// The class token always has the last position, so texts are padded to full length.
Encoded TextTransformer::encode_with_class_token(const at::Tensor& given_ids, const at::Tensor& given_mask) {
  const std::int64_t missing = settings_.context_length - given_ids.size(1), rows = given_ids.size(0);
  const at::Tensor given = given_mask.defined() ? given_mask : at::ones_like(given_ids, at::kBool);
  const at::Tensor mask = at::constant_pad_nd(given, {0, missing}, false);
  const at::Tensor ids = at::constant_pad_nd(given_ids.masked_fill(given.logical_not(), 0), {0, missing}, 0);
  const at::Tensor appended = class_embedding_.expand({rows, 1, -1});
  at::Tensor x = at::cat({at::embedding(token_weight_, ids), appended}, 1) + positional_embedding_;
  const at::Tensor always = at::ones({rows, 1}, mask.options());
  const at::Tensor keys = settings_.class_token == "shifted" ? at::cat({always, mask}, 1) : at::cat({mask, always}, 1);
  AttentionMask attention;
  attention.allowed = at::ones({x.size(1), x.size(1)}, mask.options()).tril() & keys.unsqueeze(1).unsqueeze(1);
  SequenceInfo sequence;
  sequence.mask = attention;
  x = finish(transformer_->run(x, sequence));
  Encoded out;
  out.tokens = zero_padding(x.slice(1, 0, given_ids.size(1)), given_mask);
  out.class_token = x.select(1, -1);
  out.mask = given_mask;
  out.ids = given_ids;
  return out;
}

std::int64_t TextTransformer::depth_of(const std::string& parameter) const {
  if (const auto block = Transformer::block_of(parameter)) return *block + 1;
  return parameter.starts_with("ln_final") ? depth() : 0;
}

at::Tensor TextTransformer::final_norm(const at::Tensor& pooled) {
  return settings_.final_norm == "pooled" ? ln_final_->forward(pooled) : pooled;
}

at::Tensor TextTransformer::adapt_weight(const std::string& name, const at::Tensor& stored) const {
  const bool resize =
      name == "positional_embedding" && !settings_.position_rows && settings_.position_offset == 0 && stored.dim() == 2 && stored.size(1) == settings_.width && stored.size(0) > 0;
  if (!resize || stored.size(0) == positional_embedding_.size(0)) return stored;
  const std::int64_t length = stored.size(0), wanted = positional_embedding_.size(0);
  const std::optional<std::int64_t>& kept = settings_.kept_positions;
  if (kept && wanted > length && length < *kept + 2)
    user_error("text_transformer: kept_positions is ", *kept, ", but the file has only ", length, " text positions");
  return kept ? stretch_text_position_embedding(stored, wanted, *kept) : resize_text_position_embedding(stored, wanted);
}

}  // namespace tessera
