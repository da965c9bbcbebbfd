#include "src/foreign/text_tower.h"

#include <cmath>
#include <filesystem>

#include <tessera/base/text.h>
#include <tessera/config/shipped.h>

namespace tessera {
namespace {

using enum TensorChange;

constexpr const char* kTable = "/architectures/text_towers.json";

/// Returns the encoder of BERT or, if `roberta` is true, of RoBERTa and XLM-RoBERTa, whose first position is
/// pad_token_id + 1.
TextTransformerSettings bert_encoder(const ForeignConfig& c, bool roberta) {
  c.expect<std::string>("position_embedding_type", "absolute");
  c.expect("is_decoder", false);
  TextTransformerSettings s;
  s.width = c.get<std::int64_t>("hidden_size", 768);
  s.layers = c.get<std::int64_t>("num_hidden_layers", 12);
  s.heads = c.get<std::int64_t>("num_attention_heads", 12);
  s.mlp_hidden = c.get<std::int64_t>("intermediate_size", 3072);
  s.activation = c.activation("hidden_act", "gelu");
  s.attention = "bidirectional";
  s.norm_eps = c.get("layer_norm_eps", 1e-12);
  s.vocab_size = c.get<std::int64_t>("vocab_size", roberta ? 50265 : 30522);
  s.position_rows = c.get<std::int64_t>("max_position_embeddings", 512);
  s.position_offset = roberta ? c.get<std::int64_t>("pad_token_id", 1) + 1 : 0;
  s.token_types = c.get<std::int64_t>("type_vocab_size", 2);
  s.pre_norm = true;
  s.block_norm = "after";
  s.final_norm = "none";
  return s;
}

std::vector<TensorRule> bert_rules(const TextTransformerSettings& /*encoder*/) {
  const std::vector<TensorRule> layer = {{{"attention.output.LayerNorm.**"}, {"ln_1.**"}},
                                         {{"intermediate.dense.**"}, {"mlp.c_fc.**"}},
                                         {{"output.dense.**"}, {"mlp.c_proj.**"}},
                                         {{"output.LayerNorm.**"}, {"ln_2.**"}}};
  const std::vector<TensorRule> own = with_prefixes({{{"word_embeddings.weight"}, {"token_embedding.weight"}},
                                                     {{"position_embeddings.weight"}, {"positional_embedding"}},
                                                     {{"token_type_embeddings.weight"}, {"type_embedding"}},
                                                     {{"LayerNorm.**"}, {"ln_pre.**"}}},
                                                    "embeddings.", "");
  const auto attention =
      attention_rules("attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense");
  std::vector<TensorRule> rules = joined(with_prefixes(joined(attention, layer), "encoder.layer.*.", "transformer.resblocks.*."), own);
  // Older files, such as bert-base-uncased's, have other names for the parameters of norms, which transformers also accepts.
  for (const auto& [theirs, ours] : {std::pair{"encoder.layer.*.attention.output.", "transformer.resblocks.*.ln_1."},
                                     {"encoder.layer.*.output.", "transformer.resblocks.*.ln_2."},
                                     {"embeddings.", "ln_pre."}}) {
    rules.push_back({{concat(theirs, "LayerNorm.gamma")}, {concat(ours, "weight")}});
    rules.push_back({{concat(theirs, "LayerNorm.beta")}, {concat(ours, "bias")}});
  }
  return rules;
}

TextTransformerSettings plain_bert(const ForeignConfig& c) {
  return bert_encoder(c, /*roberta=*/false);
}

TextTransformerSettings roberta_encoder(const ForeignConfig& c) {
  return bert_encoder(c, /*roberta=*/true);
}

TextTransformerSettings m2m_encoder(const ForeignConfig& c) {
  TextTransformerSettings s;
  s.width = c.get<std::int64_t>("d_model", 1024);
  s.layers = c.get<std::int64_t>("encoder_layers", 12);
  s.heads = c.get<std::int64_t>("encoder_attention_heads", 16);
  s.mlp_hidden = c.get<std::int64_t>("encoder_ffn_dim", 4096);
  s.activation = c.activation("activation_function", "relu");
  s.vocab_size = c.get<std::int64_t>("vocab_size", 128112);
  s.attention = "bidirectional";
  s.position_embedding = "sinusoidal";
  s.position_offset = c.get<std::int64_t>("pad_token_id", 1) + 1;
  if (c.get("scale_embedding", true)) s.embedding_scale = std::sqrt(static_cast<double>(s.width));
  return s;
}

std::vector<TensorRule> m2m_rules(const TextTransformerSettings& /*encoder*/) {
  const std::vector<TensorRule> layer = {{{"self_attn_layer_norm.**"}, {"ln_1.**"}},
                                         {{"fc1.**"}, {"mlp.c_fc.**"}},
                                         {{"fc2.**"}, {"mlp.c_proj.**"}},
                                         {{"final_layer_norm.**"}, {"ln_2.**"}}};
  const auto attention = attention_rules("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.out_proj");
  return joined(with_prefixes(joined(attention, layer), "layers.*.", "transformer.resblocks.*."),
                {{{"embed_tokens.weight"}, {"token_embedding.weight"}}, {{"layer_norm.**"}, {"ln_final.**"}}});
}

/// Returns the base of rotary positions in the blocks of this type. Older files have it under the key `older`.
double rotary_base(const ForeignConfig& c, const char* blocks, const char* older, double usual) {
  if (c.has("rope_scaling")) c.refuse("rope_scaling", "has no counterpart in our models");
  const ForeignConfig parameters = c.section("rope_parameters").section(blocks);
  parameters.expect<std::string>("rope_type", "default");
  return parameters.get("rope_theta", c.get(older, usual));
}

/// Sets the rotary positions, and the blocks that attend to tokens at most `window` places away. Without the key layer_types, every
/// `period`th block attends to all tokens: those whose number plus `shift` is a multiple of it.
void set_rotary_blocks(const ForeignConfig& c, TextTransformerSettings& s, std::int64_t window, std::int64_t period, std::int64_t shift) {
  s.position_embedding = "rotary";
  s.rotary_pairs = "halves";
  std::vector<std::string> types;
  for (std::int64_t i = 0; i < s.layers; ++i) types.emplace_back((i + shift) % period == 0 ? "full_attention" : "sliding_attention");
  types = c.get("layer_types", types);
  const char* older = shift == 0 ? "local_rope_theta" : "rope_local_base_freq";
  LocalAttentionSettings local{{}, window, rotary_base(c, "sliding_attention", older, 10000)};
  for (std::size_t i = 0; i < types.size(); ++i) {
    if (types[i] == "sliding_attention") local.blocks.push_back(static_cast<std::int64_t>(i));
    else if (types[i] != "full_attention") c.refuse("layer_types", "has a type of blocks that our models lack");
  }
  if (!local.blocks.empty()) s.local = local;
}

TextTransformerSettings modernbert_encoder(const ForeignConfig& c) {
  constexpr double kUsualBase = 160000;
  TextTransformerSettings s;
  s.width = c.get<std::int64_t>("hidden_size", 768);
  s.layers = c.get<std::int64_t>("num_hidden_layers", 22);
  s.heads = c.get<std::int64_t>("num_attention_heads", 12);
  s.mlp_hidden = c.get<std::int64_t>("intermediate_size", 1152);
  s.mlp = "gated";
  s.activation = c.activation("hidden_activation", "gelu");
  s.norm = c.get("norm_bias", false) ? "layer" : "layer_no_bias";
  s.norm_eps = c.get("norm_eps", 1e-5);
  s.out_bias = c.get("attention_bias", false);
  s.qkv_bias = s.out_bias ? "all" : "none";
  s.mlp_bias = c.get("mlp_bias", false);
  s.vocab_size = c.get<std::int64_t>("vocab_size", 50368);
  s.pre_norm = true;
  s.first_norm = false;
  s.attention = "bidirectional";
  s.rotary_base = rotary_base(c, "full_attention", "global_rope_theta", kUsualBase);
  set_rotary_blocks(c, s, c.get<std::int64_t>("local_attention", 128) / 2, c.get<std::int64_t>("global_attn_every_n_layers", 3), 0);
  return s;
}

std::vector<TensorRule> modernbert_rules(const TextTransformerSettings& /*encoder*/) {
  const std::vector<TensorRule> layer = {{{"attn_norm.**"}, {"ln_1.**"}},
                                         {{"attn.Wqkv.weight"}, {"attn.in_proj_weight"}},
                                         {{"attn.Wqkv.bias"}, {"attn.in_proj_bias"}},
                                         {{"attn.Wo.**"}, {"attn.out_proj.**"}},
                                         {{"mlp_norm.**"}, {"ln_2.**"}},
                                         {{"mlp.Wi.weight"}, {"mlp.c_gate.weight", "mlp.c_fc.weight"}},
                                         {{"mlp.Wi.bias"}, {"mlp.c_gate.bias", "mlp.c_fc.bias"}},
                                         {{"mlp.Wo.**"}, {"mlp.c_proj.**"}}};
  return joined(with_prefixes(layer, "layers.*.", "transformer.resblocks.*."),
                {{{"embeddings.tok_embeddings.weight"}, {"token_embedding.weight"}},
                 {{"embeddings.norm.**"}, {"ln_pre.**"}},
                 {{"final_norm.**"}, {"ln_final.**"}}});
}

TextTransformerSettings t5_encoder(const ForeignConfig& c) {
  TextTransformerSettings s;
  s.width = c.get<std::int64_t>("d_model", 512);
  s.layers = c.get<std::int64_t>("num_layers", 8);
  s.heads = c.get<std::int64_t>("num_heads", 6);
  s.head_width = c.get<std::int64_t>("d_kv", 64);
  s.score_scale = 1;
  s.mlp_hidden = c.get<std::int64_t>("d_ff", 1024);
  const auto mlp = c.get<std::string>("feed_forward_proj", "gated-gelu");
  if (mlp != "gated-gelu" && mlp != "gated-silu" && mlp != "relu") c.refuse("feed_forward_proj", "is not an MLP that our models have");
  if (mlp != "relu") s.mlp = "gated";
  s.activation = mlp == "gated-gelu" ? "gelu_tanh" : mlp == "relu" ? "relu" : "silu";
  s.norm = "rms";
  s.norm_eps = c.get("layer_norm_epsilon", 1e-6);
  s.qkv_bias = "none";
  s.out_bias = s.mlp_bias = false;
  s.vocab_size = c.get<std::int64_t>("vocab_size", 250112);
  s.attention = "bidirectional";
  s.position_embedding = "relative";
  s.relative_buckets = c.get<std::int64_t>("relative_attention_num_buckets", 32);
  s.relative_distance = c.get<std::int64_t>("relative_attention_max_distance", 128);
  return s;
}

std::vector<TensorRule> t5_rules(const TextTransformerSettings& /*encoder*/) {
  const std::string attention = "layer.0.SelfAttention.";
  const std::vector<TensorRule> layer = {{{"layer.0.layer_norm.**"}, {"ln_1.**"}},
                                         {{"layer.1.layer_norm.**"}, {"ln_2.**"}},
                                         {{"layer.1.DenseReluDense.wi_0.**"}, {"mlp.c_gate.**"}},
                                         {{"layer.1.DenseReluDense.wi_1.**"}, {"mlp.c_fc.**"}},
                                         {{"layer.1.DenseReluDense.wi.**"}, {"mlp.c_fc.**"}},
                                         {{"layer.1.DenseReluDense.wo.**"}, {"mlp.c_proj.**"}}};
  const auto maps = attention_rules(attention + "q", attention + "k", attention + "v", attention + "o");
  return joined(with_prefixes(joined(maps, layer), "block.*.", "transformer.resblocks.*."),
                {{{"block.0.layer.0.SelfAttention.relative_attention_bias.weight"}, {"relative_bias"}},
                 {{"embed_tokens.weight"}, {"token_embedding.weight"}},
                 {{"final_layer_norm.**"}, {"ln_final.**"}}});
}

/// The keys of Gemma 3's text encoder that have the values of settings.
void gemma_keys(const ForeignKeys& keys, TextTransformerSettings& s) {
  keys("hidden_size", s.width);
  keys("num_hidden_layers", s.layers);
  keys("num_attention_heads", s.heads);
  keys("num_key_value_heads", *s.key_heads);
  keys("head_dim", *s.head_width);
  keys("intermediate_size", *s.mlp_hidden);
  keys.activation("hidden_activation", s.activation);
  keys("rms_norm_eps", s.norm_eps);
  keys("attention_bias", s.out_bias);
  keys("vocab_size", s.vocab_size);
}

TextTransformerSettings gemma_encoder(const ForeignConfig& c) {
  constexpr double kUsualBase = 1e6;
  if (c.has("attn_logit_softcapping")) c.refuse("attn_logit_softcapping", "has no counterpart in our models");
  TextTransformerSettings s;
  s.width = 2304;
  s.layers = 26;
  s.heads = 8;
  s.key_heads = 4;
  s.head_width = 256;
  s.mlp_hidden = 9216;
  s.mlp = "gated";
  s.activation = "gelu_tanh";
  s.norm = "rms";
  s.norm_eps = 1e-6;
  s.block_norm = "both";
  s.qk_norm = true;
  s.mlp_bias = s.out_bias = false;
  s.vocab_size = 262208;
  gemma_keys(ForeignKeys(c), s);
  s.score_scale = 1 / std::sqrt(c.get("query_pre_attn_scalar", 256.0));
  s.qkv_bias = s.out_bias ? "all" : "none";
  s.embedding_scale = std::sqrt(static_cast<double>(s.width));
  s.rotary_base = rotary_base(c, "full_attention", "rope_theta", kUsualBase);
  // transformers halves the window of a bidirectional model; a causal one counts the token itself.
  const bool bidirectional = c.get("use_bidirectional_attention", false);
  const auto window = c.get<std::int64_t>("sliding_window", 4096);
  s.attention = bidirectional ? "bidirectional" : "causal";
  set_rotary_blocks(c, s, bidirectional ? window / 2 : window - 1, c.get<std::int64_t>("sliding_window_pattern", 6), 1);
  return s;
}

nlohmann::json gemma_config(const TextTransformerSettings& settings) {
  TextTransformerSettings s = settings;
  s.key_heads = s.key_heads.value_or(s.heads);
  s.head_width = s.head_width.value_or(s.width / s.heads);
  s.mlp_hidden = mlp_width(s);
  nlohmann::json out;
  gemma_keys(ForeignKeys(out), s);
  // The scale of scores is the power -1/2 of a number, which is whole in published models.
  const double scale = s.score_scale.value_or(1 / std::sqrt(static_cast<double>(*s.head_width))), exact = 1 / (scale * scale);
  const double whole = std::nearbyint(exact);
  if (1 / std::sqrt(whole) == scale) out["query_pre_attn_scalar"] = static_cast<std::int64_t>(whole);
  else out["query_pre_attn_scalar"] = exact;
  const LocalAttentionSettings local = s.local.value_or(LocalAttentionSettings{});
  const bool bidirectional = s.attention == "bidirectional";
  out["use_bidirectional_attention"] = bidirectional;
  out["sliding_window"] = bidirectional ? 2 * local.window : local.window + 1;
  std::vector<std::string> types(static_cast<std::size_t>(s.layers), "full_attention");
  for (const std::int64_t block : local.blocks) types.at(static_cast<std::size_t>(block)) = "sliding_attention";
  out["layer_types"] = types;
  for (const auto& [blocks, base] : {std::pair("full_attention", s.rotary_base), std::pair("sliding_attention", local.rotary_base)})
    out["rope_parameters"][blocks] = {{"rope_type", "default"}, {"rope_theta", base}};
  return out;
}

std::vector<TensorRule> gemma_rules(const TextTransformerSettings& encoder) {
  const std::vector<TensorRule> layer = {{{"input_layernorm.**"}, {"ln_1.**"}, one_less},
                                         {{"post_attention_layernorm.**"}, {"ln_1_post.**"}, one_less},
                                         {{"pre_feedforward_layernorm.**"}, {"ln_2.**"}, one_less},
                                         {{"post_feedforward_layernorm.**"}, {"ln_2_post.**"}, one_less},
                                         {{"self_attn.q_norm.**"}, {"attn.q_norm.**"}, one_less},
                                         {{"self_attn.k_norm.**"}, {"attn.k_norm.**"}, one_less},
                                         {{"mlp.gate_proj.**"}, {"mlp.c_gate.**"}},
                                         {{"mlp.up_proj.**"}, {"mlp.c_fc.**"}},
                                         {{"mlp.down_proj.**"}, {"mlp.c_proj.**"}}};
  std::vector<TensorRule> attention = attention_rules("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj");
  const std::int64_t key_heads = encoder.key_heads.value_or(encoder.heads);
  for (TensorRule& rule : attention)
    if (rule.theirs.size() == 3) rule.shares = {encoder.heads, key_heads, key_heads};
  return joined(with_prefixes(joined(attention, layer), "layers.*.", "transformer.resblocks.*."),
                {{{"embed_tokens.weight"}, {"token_embedding.weight"}}, {{"norm.**"}, {"ln_final.**"}, one_less}});
}

constexpr const char *kMean = "mean_pooler", *kFirst = "cls_last_hidden_state_pooler";

// OpenCLIP leaves out BERT's pooling layer if no pooler is named.
constexpr TextFamily kTextFamilies[] = {
    {"bert", plain_bert, bert_rules, "bert.", kFirst, true},
    {"roberta", roberta_encoder, bert_rules, "roberta.", kMean, true},
    {"xlm-roberta", roberta_encoder, bert_rules, "roberta.", kMean, true},
    {"m2m_100", m2m_encoder, m2m_rules, "model.encoder.", "cls_pooler"},
    {"modernbert", modernbert_encoder, modernbert_rules, "model.", kMean},
    {"mt5", t5_encoder, t5_rules, "encoder.", kMean},
    {"gemma3_text", gemma_encoder, gemma_rules, "model.", kMean, false, "Gemma3TextModel", gemma_config},
};

/// Returns the read-out for one of OpenCLIP's poolers. has_layer: true if the family's `cls_pooler` applies a layer of
/// its own to the first token.
std::string pooler_readout(const ForeignConfig& c, const std::string& pooler, bool has_layer) {
  if (pooler == "mean_pooler") return "gap";
  if (pooler == "cls_last_hidden_state_pooler" || (pooler == "cls_pooler" && !has_layer)) return "cls";
  user_error(c.path(), ": the pooler ", pooler, " of the text tower has no counterpart in our models",
             pooler == "cls_pooler" ? ", which have no dense layer with tanh after the first token" : "",
             ": use mean_pooler or cls_last_hidden_state_pooler");
}

config::ModuleSettings text_projection_of(const TextTowerHead& head, std::int64_t width) {
  if (head.projection.empty()) return {"none"};
  if (head.projection == "linear") return linear_to(head.embed_dim);
  const std::int64_t inner = (width + head.embed_dim) / 2;
  return module_with("mlp", {{"embed_dim", head.embed_dim}, {"inner_dim", inner}, {"norm", "none"}, {"activation", "gelu"},
                             {"hidden_bias", false}, {"bias", false}});
}

}  // namespace

ForeignConfig text_tower_config(const std::string& name, const std::string& folder, const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code unknown;
  for (const std::string& place : {folder, name})
    if (const std::string file = place + "/config.json"; fs::is_regular_file(file, unknown)) {
      ForeignConfig found = ForeignConfig::of_file(file);
      if (found.has("model_type")) return found;
    }
  const ForeignConfig models = ForeignConfig::of_file(config::shipped_folder() + kTable).section("models");
  if (models.has(name)) {
    const ForeignConfig row(models.json().at(name), path, "text_cfg(" + name + ").");
    if (row.has("refused")) user_error(path, ": the text tower ", name, " is not read: ", row.get<std::string>("refused", ""));
    return row;
  }
  std::vector<std::string> known;
  for (const auto& [key, row] : models.json().items())
    if (!row.contains("refused")) known.push_back(key);
  user_error(path, ": model_cfg.text_cfg.hf_model_name is ", name, ", whose settings are not known here (", join_names(known),
             " are): put its config.json into the folder");
}

std::span<const TextFamily> text_families() {
  return kTextFamilies;
}

const TextFamily& text_family(const ForeignConfig& config) {
  const auto kind = config.get<std::string>("model_type", "");
  std::vector<std::string> known;
  for (const TextFamily& family : kTextFamilies) {
    if (family.model_type == kind) return family;
    known.emplace_back(family.model_type);
  }
  config.refuse("model_type", concat("is not a supported text encoder: ", join_names(known), " are (docs/pretrained.md)"));
}

TextTower text_tower(const ForeignConfig& config, const TextTowerHead& head) {
  const TextFamily& family = text_family(config);
  TextTransformerSettings encoder = family.read(config);
  encoder.context_length = head.context_length;
  TextTower out;
  out.tower = {chosen("text_transformer", encoder),
               {pooler_readout(config, head.pooler.empty() ? family.usual_pooler : head.pooler, family.cls_layer)},
               text_projection_of(head, encoder.width)};
  out.rules = with_prefixes(family.rules(encoder), "transformer.", "");
  out.rules.push_back({{"proj.weight"}, {"text_projection"}, transposed});
  out.rules.push_back({{"proj.0.weight"}, {"head.linear_hidden.0.weight"}});
  out.rules.push_back({{"proj.2.weight"}, {"head.linear_out.weight"}});
  return out;
}

}  // namespace tessera
