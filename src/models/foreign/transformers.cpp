#include "src/models/foreign/transformers.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>

#include <ATen/ATen.h>

#include "src/models/foreign/draft.h"
#include "src/models/foreign/text_tower.h"
#include <tessera/base/text.h>
#include <tessera/models/projections.h>
#include <tessera/models/readouts/map_pool.h>
#include <tessera/models/readouts/pooling.h>
#include <tessera/models/text_transformer.h>
#include <tessera/models/vit.h>

namespace tessera {
namespace {

using Rules = std::vector<TensorRule>;
using enum TensorChange;

Rules joined(Rules first, const Rules& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

/// Rules for names with and without `prefix`, which transformers puts before a tower that it saves as part of a larger class
/// (Dinov2ForImageClassification: `dinov2.`). The class that config.json names decides which names are written.
Rules with_and_without(const Rules& rules, const std::string& prefix, const ForeignConfig& c, const std::set<std::string>& bare) {
  const auto classes = c.get<std::vector<std::string>>("architectures", {});
  const Rules longer = with_prefixes(rules, prefix, "");
  return !classes.empty() && bare.contains(classes.front()) ? joined(rules, longer) : joined(longer, rules);
}

/// Keys that CLIP, SigLIP, DINOv2 and DINOv3 share, with the defaults of one of them in `s`.
void read_blocks(TransformerSettings& s, const ForeignConfig& c) {
  s.width = c.get("hidden_size", s.width);
  s.layers = c.get("num_hidden_layers", s.layers);
  s.heads = c.get("num_attention_heads", s.heads);
  s.mlp_hidden = c.get("intermediate_size", s.mlp_hidden.value_or(4 * s.width));
  s.activation = c.activation("hidden_act", s.activation);
  s.norm_eps = c.get("layer_norm_eps", s.norm_eps);
}

void read_pictures(VitSettings& s, const ForeignConfig& c) {
  s.image_size = c.size("image_size", s.image_size);
  s.patch_size = c.size("patch_size", s.patch_size);
  s.partial_patches = has_partial_patches(s);
  c.expect<std::int64_t>("num_channels", 3);
}

// The way back: what config.json says of settings. What a class lacks is found when the file is read again.
using Json = nlohmann::json;

Json joined(Json first, const Json& second, const Json& third = Json::object()) {
  first.update(second);
  first.update(third);
  return first;
}

Json blocks_config(const TransformerSettings& s) {
  return {{"hidden_size", s.width},         {"num_hidden_layers", s.layers},
          {"num_attention_heads", s.heads}, {"intermediate_size", mlp_width(s)},
          {"layer_norm_eps", s.norm_eps},   {"hidden_act", s.activation == "gelu_tanh" ? "gelu_pytorch_tanh" : s.activation}};
}

Json size_config(const config::Size& size) {
  return size.height == size.width ? Json(size.height) : Json{size.height, size.width};
}

Json pictures_config(const VitSettings& s) {
  return {{"image_size", size_config(s.image_size)}, {"patch_size", size_config(s.patch_size)}, {"num_channels", 3}};
}

std::int64_t embed_dim_of(const TowerSettings& tower) {
  return settings_or_default<LinearProjectionSettings>(tower.projection, "linear").embed_dim;
}

// ---- CLIP and SigLIP

/// The layers that CLIP's and SigLIP's towers share.
Rules layer_rules() {
  return with_prefixes({{{"self_attn.q_proj.weight", "self_attn.k_proj.weight", "self_attn.v_proj.weight"}, {"attn.in_proj_weight"}},
                        {{"self_attn.q_proj.bias", "self_attn.k_proj.bias", "self_attn.v_proj.bias"}, {"attn.in_proj_bias"}},
                        {{"self_attn.out_proj.**"}, {"attn.out_proj.**"}},
                        {{"layer_norm1.**"}, {"ln_1.**"}},
                        {{"layer_norm2.**"}, {"ln_2.**"}},
                        {{"mlp.fc1.**"}, {"mlp.c_fc.**"}},
                        {{"mlp.fc2.**"}, {"mlp.c_proj.**"}}},
                       "encoder.layers.*.", "transformer.resblocks.*.");
}

/// The image tower of CLIP and SigLIP, by its names within the tower.
Rules vision_tower_rules() {
  const Rules own = {{{"embeddings.class_embedding"}, {"class_embedding"}},
                     {{"embeddings.patch_embedding.**"}, {"conv1.**"}},
                     {{"embeddings.position_embedding.weight"}, {"positional_embedding"}},
                     {{"pre_layrnorm.**"}, {"ln_pre.**"}},
                     {{"post_layernorm.**"}, {"ln_post.**"}},
                     {{"head.probe"}, {"attn_pool.probe"}, two_ahead},
                     {{"head.mlp.fc1.**"}, {"attn_pool.mlp.c_fc.**"}},
                     {{"head.mlp.fc2.**"}, {"attn_pool.mlp.c_proj.**"}},
                     {{"head.**"}, {"attn_pool.**"}}};
  return with_prefixes(joined(own, layer_rules()), "", "visual.");
}

const Rules kVisualProjection = {{{"visual_projection.weight"}, {"visual.proj"}, transposed}};

Rules vision_rules() {
  return joined(with_prefixes(vision_tower_rules(), "vision_model.", ""), kVisualProjection);
}

Rules text_tower_rules() {
  const Rules own = {{{"embeddings.token_embedding.weight"}, {"token_embedding.weight"}},
                     {{"embeddings.position_embedding.weight"}, {"positional_embedding"}},
                     {{"final_layer_norm.**"}, {"ln_final.**"}}};
  return joined(own, layer_rules());
}

/// `last`: of what the two have of their own.
Rules text_rules(const Rules& last) {
  return joined(with_prefixes(text_tower_rules(), "text_model.", ""), last);
}

const std::vector<PartLeftOut> kCounted = {{"vision_model.embeddings.position_ids", ""}, {"text_model.embeddings.position_ids", ""},
                                           {"embeddings.position_ids", ""}};

LinearProjectionSettings projection_to(std::int64_t embed_dim, bool bias = false) {
  LinearProjectionSettings settings;
  settings.embed_dim = embed_dim;
  settings.bias = bias;
  return settings;
}

TowerSettings clip_vision(const ForeignConfig& c, std::int64_t embed_dim) {
  VitSettings vit;
  vit.patch_size = 32;
  vit.activation = "quick_gelu";
  read_blocks(vit, c);
  read_pictures(vit, c);
  return {chosen("vit", vit), {"cls"}, chosen("linear", projection_to(embed_dim))};
}

TowerSettings clip_text(const ForeignConfig& c, std::int64_t embed_dim) {
  TextTransformerSettings text;
  text.activation = "quick_gelu";
  read_blocks(text, c);
  text.context_length = c.get("max_position_embeddings", text.context_length);
  text.vocab_size = c.get("vocab_size", text.vocab_size);
  EosSettings eos;
  eos.position = "ids";
  // CLIP's models from before eos_token_id was stored right say 2, and look for the largest id.
  constexpr std::int64_t kOldEnd = 2, kClipEnd = 49407;
  const auto id = c.get<std::int64_t>("eos_token_id", kClipEnd);
  if (id != kOldEnd || c.get<std::string>("model_type", "").starts_with("metaclip_2")) eos.eos_id = id;
  return {chosen("text_transformer", text), chosen("eos", eos), chosen("linear", projection_to(embed_dim))};
}

ForeignModel clip(const ForeignConfig& c) {
  constexpr std::int64_t kEmbedDim = 512;
  const std::int64_t embed_dim = c.get<std::int64_t>("projection_dim", kEmbedDim);
  ForeignModel out;
  out.model.image = clip_vision(c.section("vision_config"), embed_dim);
  out.model.text = clip_text(c.section("text_config"), embed_dim);
  out.rules = joined(vision_rules(), text_rules({{{"text_projection.weight"}, {"text_projection"}, transposed},
                                                 {{"logit_scale"}, {"logit_scale"}}}));
  out.left_out = kCounted;
  return out;
}

/// CLIPVisionModel, or CLIPVisionModelWithProjection.
ForeignModel clip_vision_alone(const ForeignConfig& c) {
  const auto classes = c.get<std::vector<std::string>>("architectures", {});
  const bool projects = !classes.empty() && classes.front().ends_with("WithProjection");
  constexpr std::int64_t kEmbedDim = 512;
  ForeignModel out;
  out.model.image = clip_vision(c, c.get<std::int64_t>("projection_dim", kEmbedDim));
  if (!projects) out.model.image.projection = {"none"};
  out.model.text.reset();
  out.rules = joined(with_and_without(vision_tower_rules(), "vision_model.", c, {"CLIPVisionModel", "MetaClip2VisionModel"}), kVisualProjection);
  out.left_out = kCounted;
  return out;
}

/// CLIPTextModel, or CLIPTextModelWithProjection.
ForeignModel clip_text_alone(const ForeignConfig& c) {
  const auto classes = c.get<std::vector<std::string>>("architectures", {});
  const bool projects = !classes.empty() && classes.front().ends_with("WithProjection");
  constexpr std::int64_t kEmbedDim = 512;
  ForeignModel out;
  out.image_tower = false;
  out.model.text = clip_text(c, c.get<std::int64_t>("projection_dim", kEmbedDim));
  if (!projects) out.model.text->projection = {"none"};
  out.rules = joined(with_and_without(text_tower_rules(), "text_model.", c, {"CLIPTextModel", "MetaClip2TextModel"}),
                     {{{"text_projection.weight"}, {"text_projection"}, transposed}});
  out.left_out = kCounted;
  return out;
}

Json clip_vision_config(const ModelFile& file) {
  const auto vit = settings_or_default<VitSettings>(file.model.image.encoder, "vit");
  return joined(blocks_config(vit), pictures_config(vit),
                {{"model_type", "clip_vision_model"}, {"projection_dim", embed_dim_of(file.model.image)}});
}

Json clip_config(const ModelFile& file) {
  const TowerSettings tower = file.model.text.value_or(TowerSettings{});
  const auto text = settings_or_default<TextTransformerSettings>(tower.encoder, "text_transformer");
  const auto eos = settings_or_default<EosSettings>(tower.readout, "eos");
  // 2 stands for the largest id; CLIP's own tokens end with theirs.
  const std::int64_t end = eos.eos_id.value_or(eos.position == "ids" && file.tokenizer.name != "clip-bpe" ? 2 : 49407);
  const Json texts = joined(blocks_config(text), {{"model_type", "clip_text_model"}, {"projection_dim", embed_dim_of(tower)}},
                            {{"max_position_embeddings", text.context_length}, {"vocab_size", text.vocab_size}, {"eos_token_id", end}});
  return {{"projection_dim", embed_dim_of(file.model.image)}, {"text_config", texts}, {"vision_config", clip_vision_config(file)}};
}

Json metaclip_2_config(const ModelFile& file) {
  Json out = clip_config(file);
  out["text_config"]["model_type"] = "metaclip_2_text_model";
  out["vision_config"]["model_type"] = "metaclip_2_vision_model";
  return out;
}

constexpr double kSmallEps = 1e-6;

TowerSettings siglip_vision(const ForeignConfig& c) {
  VitSettings vit;
  vit.class_token = vit.pre_norm = false;
  vit.patch_bias = true;
  vit.activation = "gelu_tanh";
  vit.norm_eps = kSmallEps;
  vit.mlp_hidden = 3072;
  read_blocks(vit, c);
  read_pictures(vit, c);
  // Without a head transformers' classifiers take the mean of the patches.
  if (!c.get("vision_use_head", true)) return {chosen("vit", vit), {"gap"}, {"none"}};
  MapPoolSettings pool;
  pool.heads = vit.heads;
  pool.mlp_hidden = *vit.mlp_hidden;
  pool.activation = vit.activation;
  pool.norm_eps = vit.norm_eps;
  return {chosen("vit", vit), chosen("map", pool), {"none"}};
}

TowerSettings siglip_text(const ForeignConfig& c) {
  TextTransformerSettings text;
  text.width = 768;
  text.heads = 12;
  text.mlp_hidden = 3072;
  text.activation = "gelu_tanh";
  text.norm_eps = kSmallEps;
  text.attention = "bidirectional";
  read_blocks(text, c);
  constexpr std::int64_t kLength = 64, kVocabulary = 32000;
  text.context_length = c.get("max_position_embeddings", kLength);
  text.vocab_size = c.get("vocab_size", kVocabulary);
  return {chosen("text_transformer", text), {"eos"},
          chosen("linear", projection_to(c.get("projection_size", text.width), /*bias=*/true))};
}

ForeignModel siglip(const ForeignConfig& c) {
  ForeignModel out;
  out.model.image = siglip_vision(c.section("vision_config"));
  out.model.text = siglip_text(c.section("text_config"));
  out.model.preprocessing.mean = out.model.preprocessing.std = {0.5, 0.5, 0.5};
  out.rules = joined(vision_rules(), text_rules({{{"text_model.head.weight"}, {"text_projection"}, transposed},
                                                 {{"text_model.head.bias"}, {"text_projection_bias"}},
                                                 {{"logit_scale"}, {"logit_scale"}, one_ahead},
                                                 {{"logit_bias"}, {"logit_bias"}, one_ahead}}));
  out.left_out = kCounted;
  out.padding_is_text = true;
  return out;
}

ForeignModel siglip_vision_alone(const ForeignConfig& c) {
  ForeignModel out;
  out.model.image = siglip_vision(c);
  out.model.text.reset();
  out.model.preprocessing.mean = out.model.preprocessing.std = {0.5, 0.5, 0.5};
  out.rules = with_and_without(vision_tower_rules(), "vision_model.", c, {"SiglipVisionModel"});
  out.left_out = kCounted;
  return out;
}

ForeignModel siglip_text_alone(const ForeignConfig& c) {
  ForeignModel out;
  out.image_tower = false;
  out.model.text = siglip_text(c);
  const Rules head = {{{"head.weight"}, {"text_projection"}, transposed}, {{"head.bias"}, {"text_projection_bias"}}};
  out.rules = with_and_without(joined(text_tower_rules(), head), "text_model.", c, {"SiglipTextModel"});
  out.left_out = kCounted;
  out.padding_is_text = true;
  return out;
}

Json siglip_vision_config(const ModelFile& file) {
  const auto vit = settings_or_default<VitSettings>(file.model.image.encoder, "vit");
  return joined(blocks_config(vit), pictures_config(vit), {{"model_type", "siglip_vision_model"}, {"vision_use_head", file.model.image.readout.name == "map"}});
}

Json siglip_config(const ModelFile& file) {
  const TowerSettings tower = file.model.text.value_or(TowerSettings{});
  const auto text = settings_or_default<TextTransformerSettings>(tower.encoder, "text_transformer");
  const Json texts = joined(blocks_config(text), {{"model_type", "siglip_text_model"}, {"projection_size", embed_dim_of(tower)}},
                            {{"max_position_embeddings", text.context_length}, {"vocab_size", text.vocab_size}});
  return {{"text_config", texts}, {"vision_config", siglip_vision_config(file)}};
}

// ---- DINO

/// What DINOv2 and DINOv3 share; `patches` and `norm` are the names in which they differ.
Rules dino_rules(const Rules& layer, const std::string& layers, const std::string& patches, const std::string& norm) {
  const Rules shared = {{{"layer_scale1.lambda1"}, {"ls_1.gamma"}},
                        {{"layer_scale2.lambda1"}, {"ls_2.gamma"}},
                        {{"norm1.**"}, {"ln_1.**"}},
                        {{"norm2.**"}, {"ln_2.**"}}};
  const Rules own = {{{"embeddings.cls_token"}, {"class_embedding"}, two_ahead},
                     {{"embeddings.register_tokens"}, {"register_embedding"}, one_ahead},
                     {{"embeddings.position_embeddings"}, {"positional_embedding"}, one_ahead},
                     {{patches + ".**"}, {"conv1.**"}},
                     {{norm + ".**"}, {"ln_post.**"}}};
  return with_prefixes(joined(own, with_prefixes(joined(layer, shared), layers, "transformer.resblocks.*.")), "", "visual.");
}

/// Of Dinov2: gated hidden width is two thirds, up to a multiple of 8.
std::int64_t swiglu_width(std::int64_t width, std::int64_t ratio) {
  constexpr std::int64_t kMultiple = 8;
  return (width * ratio * 2 / 3 + kMultiple - 1) / kMultiple * kMultiple;
}

ForeignModel dinov2(const ForeignConfig& c, bool registers) {
  VitSettings vit;
  vit.norm_eps = kSmallEps;
  vit.patch_size = 14;
  vit.pre_norm = false;
  vit.patch_bias = true;
  vit.layer_scale_init = c.get("layerscale_value", 1.0);
  vit.registers = registers ? c.get<std::int64_t>("num_register_tokens", 4) : 0;
  vit.position_resampling = "bicubic";
  read_blocks(vit, c);
  read_pictures(vit, c);
  const std::int64_t ratio = c.get<std::int64_t>("mlp_ratio", 4);
  vit.mlp_hidden = ratio * vit.width;
  if (!c.get("qkv_bias", true)) vit.qkv_bias = "none";
  if (c.get("use_swiglu_ffn", false)) {
    vit.mlp = "gated";
    vit.activation = "silu";
    vit.mlp_hidden = swiglu_width(vit.width, ratio);
  }
  const Rules gated = {{{"mlp.weights_in.weight"}, {"mlp.c_gate.weight", "mlp.c_fc.weight"}},
                       {{"mlp.weights_in.bias"}, {"mlp.c_gate.bias", "mlp.c_fc.bias"}},
                       {{"mlp.weights_out.**"}, {"mlp.c_proj.**"}}};
  const Rules plain = {{{"mlp.fc1.**"}, {"mlp.c_fc.**"}}, {{"mlp.fc2.**"}, {"mlp.c_proj.**"}}};
  const Rules layer = {{{"attention.attention.query.weight", "attention.attention.key.weight", "attention.attention.value.weight"}, {"attn.in_proj_weight"}},
                       {{"attention.attention.query.bias", "attention.attention.key.bias", "attention.attention.value.bias"}, {"attn.in_proj_bias"}},
                       {{"attention.output.dense.**"}, {"attn.out_proj.**"}}};
  ForeignModel out;
  out.model.text.reset();
  out.model.image = {chosen("vit", vit), {"cls"}, {"none"}};
  out.rules = with_and_without(dino_rules(joined(layer, vit.mlp == "gated" ? gated : plain), "encoder.layer.*.",
                                          "embeddings.patch_embeddings.projection", "layernorm"),
                               registers ? "dinov2_with_registers." : "dinov2.", c, {"Dinov2Model", "Dinov2WithRegistersModel"});
  out.left_out = {{"embeddings.mask_token", "the token of masked patches"},
                  {"dinov2.embeddings.mask_token", "the token of masked patches"},
                  {"dinov2_with_registers.embeddings.mask_token", "the token of masked patches"},
                  {"classifier.**", "the classifier"}};
  return out;
}

/// ViT as Google published it.
ForeignModel vit(const ForeignConfig& c) {
  VitSettings vit;
  vit.norm_eps = 1e-12;
  vit.pre_norm = false;
  vit.patch_bias = true;
  vit.position_resampling = "bicubic";
  vit.mlp_hidden = 3072;
  read_blocks(vit, c);
  read_pictures(vit, c);
  if (!c.get("qkv_bias", true)) vit.qkv_bias = "none";
  const Rules layer = {{{"attention.attention.query.weight", "attention.attention.key.weight", "attention.attention.value.weight"}, {"attn.in_proj_weight"}},
                       {{"attention.attention.query.bias", "attention.attention.key.bias", "attention.attention.value.bias"}, {"attn.in_proj_bias"}},
                       {{"attention.output.dense.**"}, {"attn.out_proj.**"}},
                       {{"layernorm_before.**"}, {"ln_1.**"}},
                       {{"layernorm_after.**"}, {"ln_2.**"}},
                       {{"intermediate.dense.**"}, {"mlp.c_fc.**"}},
                       {{"output.dense.**"}, {"mlp.c_proj.**"}}};
  ForeignModel out;
  out.model.text.reset();
  out.model.image = {chosen("vit", vit), {"cls"}, {"none"}};
  out.model.preprocessing.mean = out.model.preprocessing.std = {0.5, 0.5, 0.5};
  out.rules = with_and_without(dino_rules(layer, "encoder.layer.*.", "embeddings.patch_embeddings.projection", "layernorm"), "vit.", c, {"ViTModel"});
  out.left_out = {{"pooler.**", "the layer behind the class token"},
                  {"vit.pooler.**", "the layer behind the class token"},
                  {"embeddings.mask_token", "the token of masked patches"},
                  {"vit.embeddings.mask_token", "the token of masked patches"},
                  {"decoder.**", "the decoder of masked patches"},
                  {"classifier.**", "the classifier"}};
  return out;
}

/// BERT, RoBERTa, XLM-RoBERTa and NLLB's encoder: a text tower alone, without a projection.
ForeignModel text_alone(const ForeignConfig& c) {
  const auto kind = c.get<std::string>("model_type", "");
  const bool m2m = kind == "m2m_100";
  TextTowerHead head;
  const std::int64_t rows = c.get<std::int64_t>("max_position_embeddings", 512) - (kind == "bert" ? 0 : c.get<std::int64_t>("pad_token_id", 1) + 1);
  if (!m2m) head.context_length = std::min(head.context_length, rows);
  const TextTower tower = text_tower(c, head);
  const std::string prefix = m2m ? "model.encoder." : kind == "bert" ? "bert." : "roberta.";
  const Rules bare = text_encoder_rules(c);
  ForeignModel out;
  out.image_tower = false;
  out.model.text = tower.tower;
  out.rules = joined(joined(with_prefixes(bare, prefix, ""), bare), with_prefixes(bare, "encoder.", ""));
  if (m2m) out.rules.push_back({{"model.shared.weight"}, {"token_embedding.weight"}});
  for (const std::string& of : {std::string(), prefix}) {
    out.left_out.push_back({of + "pooler.**", "the layer behind the first token"});
    out.left_out.push_back({of + "embeddings.position_ids", ""});
    out.left_out.push_back({of + "embeddings.token_type_ids", ""});
  }
  for (const char* head : {"cls.**", "lm_head.**", "classifier.**", "qa_outputs.**"}) out.left_out.push_back({head, "the head for another task"});
  for (const char* part : {"decoder.**", "model.decoder.**"}) out.left_out.push_back({part, "the text decoder"});
  return out;
}

Json dinov2_config(const ModelFile& file) {
  const auto vit = settings_or_default<VitSettings>(file.model.image.encoder, "vit");
  const bool gated = vit.mlp == "gated";
  // The ratio is a whole number; the gated width follows from it by rounding.
  const std::int64_t ratio = (mlp_width(vit) * (gated ? 3 : 2) / 2 + vit.width / 2) / vit.width;
  Json out = joined(blocks_config(vit), pictures_config(vit),
                    {{"mlp_ratio", ratio}, {"use_swiglu_ffn", gated}, {"qkv_bias", vit.qkv_bias == "all"}, {"layerscale_value", 1.0}});
  out.erase("intermediate_size");
  if (gated) out["hidden_act"] = "gelu";  // which it does not use
  return out;
}

ForeignModel dinov2_plain(const ForeignConfig& c) {
  return dinov2(c, /*registers=*/false);
}

ForeignModel dinov2_with_registers(const ForeignConfig& c) {
  return dinov2(c, /*registers=*/true);
}

Json vit_config(const ModelFile& file) {
  const auto vit = settings_or_default<VitSettings>(file.model.image.encoder, "vit");
  return joined(blocks_config(vit), pictures_config(vit), {{"qkv_bias", vit.qkv_bias == "all"}});
}

Json dinov2_with_registers_config(const ModelFile& file) {
  Json out = dinov2_config(file);
  out["num_register_tokens"] = settings_or_default<VitSettings>(file.model.image.encoder, "vit").registers;
  return out;
}

RotarySettings dinov3_rotary(const ForeignConfig& c) {
  RotarySettings rotary;
  rotary.base = c.get("rope_theta", 100.0);
  if (c.has("rope_parameters")) rotary.base = c.section("rope_parameters").get("rope_theta", rotary.base);
  rotary.coordinates = "centered";
  rotary.pairs = "halves";
  if (c.has("pos_embed_shift")) rotary.shift = c.get("pos_embed_shift", 0.0);
  if (c.has("pos_embed_jitter")) rotary.jitter = c.get("pos_embed_jitter", 1.0);
  if (c.has("pos_embed_rescale")) rotary.rescale = c.get("pos_embed_rescale", 2.0);
  return rotary;
}

/// Our name for the parts of the input projection that have a bias.
std::string biases_named(bool query, bool key, bool value) {
  const int count = int{query} + int{key} + int{value};
  if (count == 3) return "all";
  if (count == 2) return !query ? "no_query" : !key ? "no_key" : "no_value";
  return query ? "query" : key ? "key" : value ? "value" : "none";
}

ForeignModel dinov3(const ForeignConfig& c) {
  VitSettings vit;
  vit.width = 384;
  vit.heads = 6;
  vit.mlp_hidden = 1536;
  vit.pre_norm = false;
  vit.patch_bias = true;
  vit.layer_scale_init = c.get("layerscale_value", 1.0);
  vit.registers = c.get<std::int64_t>("num_register_tokens", 0);
  vit.position_embedding = "none";
  vit.rotary = dinov3_rotary(c);
  read_blocks(vit, c);
  read_pictures(vit, c);
  vit.qkv_bias = biases_named(c.get("query_bias", true), c.get("key_bias", false), c.get("value_bias", true));
  vit.out_bias = c.get("proj_bias", true);
  vit.mlp_bias = c.get("mlp_bias", true);
  if (c.get("use_gated_mlp", false)) vit.mlp = "gated";
  const Rules layer = {{{"attention.q_proj.weight", "attention.k_proj.weight", "attention.v_proj.weight"}, {"attn.in_proj_weight"}},
                       {{"attention.q_proj.bias", "attention.k_proj.bias", "attention.v_proj.bias"}, {"attn.in_proj_bias"}},
                       {{"attention.q_proj.bias"}, {"attn.q_bias"}},
                       {{"attention.k_proj.bias"}, {"attn.k_bias"}},
                       {{"attention.v_proj.bias"}, {"attn.v_bias"}},
                       {{"attention.o_proj.**"}, {"attn.out_proj.**"}},
                       {{"mlp.gate_proj.**"}, {"mlp.c_gate.**"}},
                       {{"mlp.up_proj.**"}, {"mlp.c_fc.**"}},
                       {{"mlp.down_proj.**"}, {"mlp.c_proj.**"}}};
  ForeignModel out;
  out.model.text.reset();
  out.model.image = {chosen("vit", vit), {"cls"}, {"none"}};
  out.rules = dino_rules(layer, "layer.*.", "embeddings.patch_embeddings", "norm");
  // Without registers transformers writes an empty tensor.
  out.left_out = {{"embeddings.mask_token", "the token of masked patches"}, {"embeddings.register_tokens", ""}};
  return out;
}

Json dinov3_config(const ModelFile& file) {
  const auto vit = settings_or_default<VitSettings>(file.model.image.encoder, "vit");
  const RotarySettings rotary = vit.rotary.value_or(RotarySettings{});
  const auto biased = [&](const std::string& part) {
    return vit.qkv_bias == "all" || vit.qkv_bias == part || (vit.qkv_bias.starts_with("no_") && vit.qkv_bias != "no_" + part);
  };
  Json out = joined(blocks_config(vit), pictures_config(vit),
                    {{"num_register_tokens", vit.registers}, {"use_gated_mlp", vit.mlp == "gated"}, {"query_bias", biased("query")},
                     {"key_bias", biased("key")}, {"value_bias", biased("value")}, {"proj_bias", vit.out_bias}, {"mlp_bias", vit.mlp_bias},
                     {"rope_theta", rotary.base}});
  // Their defaults augment in training; null is none.
  const std::pair<const char*, std::optional<double>> augmentations[] = {
      {"pos_embed_shift", rotary.shift}, {"pos_embed_jitter", rotary.jitter}, {"pos_embed_rescale", rotary.rescale}};
  for (const auto& [key, value] : augmentations) out[key] = value ? Json(*value) : Json(nullptr);
  return out;
}

// ---- preprocessor_config.json

std::array<double, 3> channels(const ForeignConfig& c, const std::string& key, const std::array<double, 3>& otherwise) {
  return c.get(key, otherwise);
}

std::string interpolation_of(const ForeignConfig& c) {
  constexpr int kBilinear = 2, kBicubic = 3;
  const auto kind = c.get<std::string>("image_processor_type", "");
  const bool usually_bilinear = kind.starts_with("DINOv3") || kind.starts_with("ViT");
  const int resample = c.get("resample", usually_bilinear ? kBilinear : kBicubic);
  if (resample != kBilinear && resample != kBicubic)
    c.refuse("resample", "is neither bilinear (2) nor bicubic (3); 0 is nearest, 1 Lanczos, 4 box and 5 Hamming");
  return resample == kBilinear ? "bilinear" : "bicubic";
}

/// The size at a key: a number, the shorter edge, or height and width.
config::Size size_of(const ForeignConfig& c, const std::string& key, const config::Size& otherwise) {
  if (!c.has(key) || !c.json().at(key).is_object()) return c.size(key, otherwise);
  const ForeignConfig size = c.section(key);
  const auto edge = [&](const char* name) { return size.get<std::int64_t>(name, 0); };
  const config::Size out = size.has("shortest_edge") ? config::Size(edge("shortest_edge")) : config::Size(edge("height"), edge("width"));
  if (size.has("longest_edge") || out.height < 1 || out.width < 1)
    c.refuse(key, "is no size of pictures that ours can have: shortest_edge, or height and width are read");
  return out;
}

/// The share that timm's crop_pct would have: our transform makes the size before the crop from it.
double share_of(std::int64_t kept, std::int64_t resized) {
  const auto gives = [&](double share) { return static_cast<std::int64_t>(std::floor(static_cast<double>(kept) / share)) == resized; };
  const double share = static_cast<double>(kept) / static_cast<double>(resized);
  return gives(share) ? share : static_cast<double>(kept) / (static_cast<double>(resized) + 0.5);
}

void read_sizes(Preprocessing& p, const ForeignConfig& c) {
  const bool crops = c.get("do_center_crop", c.has("crop_size"));
  const bool object = c.has("size") && c.json().at("size").is_object();
  const bool keeps_ratio = object ? c.section("size").has("shortest_edge") : c.has("size") && crops;
  p.resize_mode = keeps_ratio ? "shortest" : "squash";
  p.crop_rounding = "down";
  const config::Size resized = size_of(c, "size", p.image_size);
  p.image_size = crops ? size_of(c, "crop_size", resized) : resized;
  if (p.image_size.height > resized.height || p.image_size.width > resized.width)
    c.refuse("crop_size", "is larger than the resized picture, around which ours have no border");
  p.crop_pct = share_of(p.image_size.height, resized.height);
  if (share_of(p.image_size.width, resized.width) != p.crop_pct)
    c.refuse("crop_size", "keeps other shares of height and width than of each other");
}

/// Ours have the factor 1 / 255 before them.
void read_values(Preprocessing& p, const ForeignConfig& c) {
  constexpr double kLevels = 255, kTolerance = 1e-6;
  p.mean = channels(c, "image_mean", p.mean);
  p.std = channels(c, "image_std", p.std);
  if (!c.get("do_normalize", true)) {
    p.mean = {0, 0, 0};
    p.std = {1, 1, 1};
  }
  const double factor = c.get("rescale_factor", 1 / kLevels) * kLevels;
  if (!(factor > 0)) c.refuse("rescale_factor", "is not above 0");
  if (std::abs(factor - 1) < kTolerance) return;
  for (auto* values : {&p.mean, &p.std})
    for (double& value : *values) value /= factor;
}

void read_preprocessing(Preprocessing& p, const std::string& folder) {
  const std::string path = folder + "/preprocessor_config.json";
  if (!std::filesystem::is_regular_file(path)) return;
  const ForeignConfig c = ForeignConfig::of_file(path);
  c.expect("do_resize", true);
  c.expect("do_rescale", true);
  c.expect("do_pad", false);
  read_values(p, c);
  p.interpolation = interpolation_of(c);
  read_sizes(p, c);
}

Json preprocessor_config(const Preprocessing& p, const char* processor) {
  constexpr int kBilinear = 2, kBicubic = 3;
  constexpr double kScale = 1.0 / 255;
  const auto size_of = [](std::int64_t height, std::int64_t width) { return Json{{"height", height}, {"width", width}}; };
  const auto resized = [&](std::int64_t side) { return static_cast<std::int64_t>(std::floor(static_cast<double>(side) / p.crop_pct)); };
  Json out = {{"image_processor_type", processor}, {"do_resize", true},   {"resample", p.interpolation == "bilinear" ? kBilinear : kBicubic},
              {"do_rescale", true},                {"rescale_factor", kScale}, {"do_normalize", true},
              {"image_mean", p.mean},              {"image_std", p.std},  {"do_convert_rgb", true}};
  const std::int64_t height = resized(p.image_size.height), width = resized(p.image_size.width);
  const bool shortest = p.resize_mode == "shortest", crops = shortest || p.crop_pct < 1;
  out["do_center_crop"] = crops;
  out["size"] = shortest ? Json{{"shortest_edge", std::min(height, width)}} : size_of(height, width);
  if (crops) out["crop_size"] = size_of(p.image_size.height, p.image_size.width);
  return out;
}

/// A family by its model_type: how its configuration is read, and for what transformers has a class, how one is written.
struct Family {
  const char* model_type;
  ForeignModel (*read)(const ForeignConfig&);
  const char* architecture = nullptr;  // null: read alone
  const char* processor = nullptr;
  bool texts = false;
  Json (*config)(const ModelFile&) = nullptr;
  int mask_token_dims = 0;  // of a token that our models lack, [1, ..., width]; 0: none
};

// A model is written as the first class that says all of it.
constexpr Family kFamilies[] = {
    {"clip", clip, "CLIPModel", "CLIPImageProcessor", true, clip_config},
    {"metaclip_2", clip, "MetaClip2Model", "CLIPImageProcessor", true, metaclip_2_config},
    {"siglip", siglip, "SiglipModel", "SiglipImageProcessor", true, siglip_config},
    {"clip_vision_model", clip_vision_alone, "CLIPVisionModelWithProjection", "CLIPImageProcessor", false, clip_vision_config},
    {"clip_vision_model", clip_vision_alone, "CLIPVisionModel", "CLIPImageProcessor", false, clip_vision_config},
    {"siglip_vision_model", siglip_vision_alone, "SiglipVisionModel", "SiglipImageProcessor", false, siglip_vision_config},
    {"dinov2", dinov2_plain, "Dinov2Model", "BitImageProcessor", false, dinov2_config, 2},
    {"dinov2_with_registers", dinov2_with_registers, "Dinov2WithRegistersModel", "BitImageProcessor", false, dinov2_with_registers_config, 2},
    {"dinov3_vit", dinov3, "DINOv3ViTModel", "DINOv3ViTImageProcessorFast", false, dinov3_config, 3},
    {"vit", vit, "ViTModel", "ViTImageProcessor", false, vit_config},
    {"metaclip_2_vision_model", clip_vision_alone},
    {"clip_text_model", clip_text_alone},
    {"metaclip_2_text_model", clip_text_alone},
    {"siglip_text_model", siglip_text_alone},
    {"bert", text_alone},
    {"roberta", text_alone},
    {"xlm-roberta", text_alone},
    {"m2m_100", text_alone},
};

NamedTensors needed_by(const Family& family, const Json& config) {
  if (family.mask_token_dims == 0) return {};
  std::vector<std::int64_t> shape(static_cast<std::size_t>(family.mask_token_dims), 1);
  shape.back() = config.at("hidden_size").get<std::int64_t>();
  return {{"embeddings.mask_token", at::zeros(shape)}};
}

constexpr const char *kConfigName = "config.json", *kPreprocessorName = "preprocessor_config.json";

}  // namespace

std::vector<PublishedDraft> transformers_drafts(const ModelFile& file) {
  const nlohmann::ordered_json carried = carried_json(file, "transformers", kConfigName);
  std::vector<PublishedDraft> out;
  for (const Family& family : kFamilies) {
    if (family.architecture == nullptr || family.texts != file.model.text.has_value()) continue;
    Json config = family.config(file);
    config.update({{"model_type", family.model_type}, {"architectures", {family.architecture}}, {"dtype", "float32"}});
    PublishedDraft draft{concat("transformers' ", family.architecture), {}, needed_by(family, config), false};
    if (carried.value("model_type", "") == family.model_type) {
      Json merged = carried;
      merged.update(config, /*merge_objects=*/true);
      config = merged;
      draft.carries_parts = true;
      draft.files[kConfigName] = config.dump(2) + "\n";
      out.push_back(draft);  // with the carried preprocessor_config.json
    }
    draft.files[kConfigName] = config.dump(2) + "\n";
    draft.files[kPreprocessorName] = preprocessor_config(file.model.preprocessing, family.processor).dump(2) + "\n";
    out.push_back(draft);
  }
  return out;
}

ForeignModel transformers_model(const ForeignConfig& config, const std::string& folder) {
  const auto kind = config.get<std::string>("model_type", "");
  const Family* family = std::ranges::find_if(kFamilies, [&](const Family& one) { return one.model_type == kind; });
  if (family == std::end(kFamilies)) {
    std::set<std::string> known;
    for (const Family& one : kFamilies) known.insert(one.model_type);
    config.refuse("model_type", concat("is no family that is read here: ", join_names({known.begin(), known.end()}), " are (docs/pretrained.md)"));
  }
  ForeignModel out = family->read(config);
  out.library = "transformers";
  out.tokenizer_in_folder = out.model.text.has_value();
  Preprocessing& preprocessing = out.model.preprocessing;
  if (const config::Node* size = out.model.image.encoder.settings.find("image_size"))
    preprocessing.image_size = config::Value<config::Size>::read(*size, "image_size", {});
  if (kind.starts_with("dino")) {
    preprocessing.mean = {0.485, 0.456, 0.406};
    preprocessing.std = {0.229, 0.224, 0.225};
  }
  read_preprocessing(preprocessing, folder);
  out.model.image.encoder.settings.set("image_size", config::Value<config::Size>::dump(preprocessing.image_size));
  return out;
}

}  // namespace tessera
