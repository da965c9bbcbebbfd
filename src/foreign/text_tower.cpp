#include "src/foreign/text_tower.h"

#include <cmath>
#include <filesystem>

#include "src/models/text_transformer.h"
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

std::vector<TensorRule> bert_rules() {
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

TextTransformerSettings m2m_encoder(const ForeignConfig& c) {
  TextTransformerSettings s;
  s.width = c.get<std::int64_t>("d_model", 1024);
  s.layers = c.get<std::int64_t>("encoder_layers", 12);
  s.heads = c.get<std::int64_t>("encoder_attention_heads", 16);
  s.mlp_hidden = c.get<std::int64_t>("encoder_ffn_dim", 4096);
  s.activation = c.activation("activation_function", "relu");
  s.vocab_size = c.get<std::int64_t>("vocab_size", 128112);
  s.position_embedding = "sinusoidal";
  s.position_offset = c.get<std::int64_t>("pad_token_id", 1) + 1;
  if (c.get("scale_embedding", true)) s.embedding_scale = std::sqrt(static_cast<double>(s.width));
  return s;
}

std::vector<TensorRule> m2m_rules() {
  const std::vector<TensorRule> layer = {{{"self_attn_layer_norm.**"}, {"ln_1.**"}},
                                         {{"fc1.**"}, {"mlp.c_fc.**"}},
                                         {{"fc2.**"}, {"mlp.c_proj.**"}},
                                         {{"final_layer_norm.**"}, {"ln_2.**"}}};
  const auto attention = attention_rules("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.out_proj");
  return joined(with_prefixes(joined(attention, layer), "layers.*.", "transformer.resblocks.*."),
                {{{"embed_tokens.weight"}, {"token_embedding.weight"}}, {{"layer_norm.**"}, {"ln_final.**"}}});
}

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

std::vector<TensorRule> text_encoder_rules(const ForeignConfig& config) {
  return config.get<std::string>("model_type", "") == "m2m_100" ? m2m_rules() : bert_rules();
}

TextTower text_tower(const ForeignConfig& config, const TextTowerHead& head) {
  const auto kind = config.get<std::string>("model_type", "");
  const bool roberta = kind == "roberta" || kind == "xlm-roberta", m2m = kind == "m2m_100";
  if (!roberta && !m2m && kind != "bert")
    config.refuse("model_type", "is not a supported text encoder: bert, roberta, xlm-roberta and m2m_100 are (docs/pretrained.md)");
  TextTransformerSettings encoder = m2m ? m2m_encoder(config) : bert_encoder(config, roberta);
  encoder.context_length = head.context_length;
  encoder.attention = "bidirectional";
  // OpenCLIP leaves out BERT's pooling layer if no pooler is named.
  const std::string usual = roberta ? "mean_pooler" : m2m ? "cls_pooler" : "cls_last_hidden_state_pooler";
  TextTower out;
  out.tower = {chosen("text_transformer", encoder), {pooler_readout(config, head.pooler.empty() ? usual : head.pooler, !m2m)},
               text_projection_of(head, encoder.width)};
  out.rules = with_prefixes(text_encoder_rules(config), "transformer.", "");
  out.rules.push_back({{"proj.weight"}, {"text_projection"}, transposed});
  out.rules.push_back({{"proj.0.weight"}, {"head.linear_hidden.0.weight"}});
  out.rules.push_back({{"proj.2.weight"}, {"head.linear_out.weight"}});
  return out;
}

}  // namespace tessera
