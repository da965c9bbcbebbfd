#include "src/foreign/draft.h"
#include "src/foreign/transformers_family.h"
#include "src/models/position_embedding.h"
#include "src/models/text_transformer.h"

namespace tessera {
namespace {

using enum TensorChange;

/// Returns the rules for the layers that CLIP's and SigLIP's towers share.
Rules layer_rules() {
  const Rules others = {{{"layer_norm1.**"}, {"ln_1.**"}},
                        {{"layer_norm2.**"}, {"ln_2.**"}},
                        {{"mlp.fc1.**"}, {"mlp.c_fc.**"}},
                        {{"mlp.fc2.**"}, {"mlp.c_proj.**"}}};
  const Rules attention = attention_rules("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.out_proj");
  return with_prefixes(joined(attention, others), "encoder.layers.*.", "transformer.resblocks.*.");
}

/// Returns the rules for the image tower of CLIP and SigLIP. The names are relative to the tower.
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
const TensorRule kTextProjection = {{"text_projection.weight"}, {"text_projection"}, transposed};

Rules vision_rules() {
  return joined(with_prefixes(vision_tower_rules(), "vision_model.", ""), kVisualProjection);
}

Rules text_tower_rules() {
  const Rules own = {{{"embeddings.token_embedding.weight"}, {"token_embedding.weight"}},
                     {{"embeddings.position_embedding.weight"}, {"positional_embedding"}},
                     {{"final_layer_norm.**"}, {"ln_final.**"}}};
  return joined(own, layer_rules());
}

/// Returns the rules for the text tower of CLIP or SigLIP. `last` contains the rules that differ between the two.
Rules text_rules(const Rules& last) {
  return joined(with_prefixes(text_tower_rules(), "text_model.", ""), last);
}

const std::vector<PartLeftOut> kCounted = {{"vision_model.embeddings.position_ids", ""}, {"text_model.embeddings.position_ids", ""},
                                           {"embeddings.position_ids", ""}};

/// The keys of a text tower.
void text_keys(const ForeignKeys& keys, TextTransformerSettings& text) {
  block_keys(keys, text);
  keys("max_position_embeddings", text.context_length);
  keys("vocab_size", text.vocab_size);
}

/// Returns the output width of CLIP's projections.
std::int64_t projection_dim(const ForeignConfig& c) {
  return c.get<std::int64_t>("projection_dim", 512);
}

TowerSettings clip_vision(const ForeignConfig& c, std::int64_t embed_dim) {
  VitSettings vit;
  vit.patch_size = 32;
  vit.activation = "quick_gelu";
  image_keys(ForeignKeys(c), vit);
  return {chosen("vit", vit), {"cls"}, linear_to(embed_dim)};
}

TowerSettings clip_text(const ForeignConfig& c, std::int64_t embed_dim) {
  TextTransformerSettings text;
  text.activation = "quick_gelu";
  text_keys(ForeignKeys(c), text);
  // Older CLIP models mistakenly have 2 as eos_token_id. Their real end token is the one with the largest id.
  constexpr std::int64_t kOldEnd = 2, kClipEnd = 49407;
  const auto id = c.get<std::int64_t>("eos_token_id", kClipEnd);
  const bool usual = id == kOldEnd && !c.get<std::string>("model_type", "").starts_with("metaclip_2");
  const config::ModuleSettings eos = module_with("eos", {{"position", "ids"}, {"eos_id", usual ? Json() : Json(id)}});
  return {chosen("text_transformer", text), eos, linear_to(embed_dim)};
}

ForeignModel clip(const ForeignConfig& c) {
  ForeignModel out;
  out.model.image = clip_vision(c.section("vision_config"), projection_dim(c));
  out.model.text = clip_text(c.section("text_config"), projection_dim(c));
  out.rules = joined(vision_rules(), text_rules({kTextProjection, {{"logit_scale"}, {"logit_scale"}}}));
  out.left_out = kCounted;
  return out;
}

/// Returns the tower without its projection, except for the class ...WithProjection.
TowerSettings as_in_class(TowerSettings tower, const ForeignConfig& c) {
  const auto classes = c.get<std::vector<std::string>>("architectures", {});
  if (classes.empty() || !classes.front().ends_with("WithProjection")) tower.projection = {"none"};
  return tower;
}

/// Reads CLIPVisionModel or CLIPVisionModelWithProjection.
ForeignModel clip_vision_alone(const ForeignConfig& c) {
  const Rules rules = with_and_without(vision_tower_rules(), "vision_model.", c, {"CLIPVisionModel", "MetaClip2VisionModel"});
  return image_tower_alone(as_in_class(clip_vision(c, projection_dim(c)), c), joined(rules, kVisualProjection), kCounted);
}

/// Reads CLIPTextModel or CLIPTextModelWithProjection.
ForeignModel clip_text_alone(const ForeignConfig& c) {
  const Rules rules = with_and_without(text_tower_rules(), "text_model.", c, {"CLIPTextModel", "MetaClip2TextModel"});
  return text_tower_alone(as_in_class(clip_text(c, projection_dim(c)), c), joined(rules, {kTextProjection}), kCounted);
}

Json clip_vision_config(const ModelFile& file) {
  return joined(written(image_keys, vit_settings_of(file)),
                {{"model_type", "clip_vision_model"}, {"projection_dim", embed_dim_of(file.model.image)}});
}

Json clip_text_config(const ModelFile& file) {
  const TowerSettings tower = file.model.text.value_or(TowerSettings{});
  const auto text = settings_or_default<TextTransformerSettings>(tower.encoder, "text_transformer");
  const Json eos = tower.readout.name == "eos" ? config::to_json(tower.readout.settings) : Json::object();
  // If eos_token_id is 2, the library transformers reads out the token with the largest id. With CLIP's tokenizer, this is the end token,
  // whose id is 49407. So 49407 can be written instead of 2.
  const bool largest = eos.value("position", "mask") == "ids" && file.tokenizer.name != "clip-bpe";
  const Json id = eos.value("eos_id", Json()), end = id.is_null() ? Json(largest ? 2 : 49407) : id;
  return joined(written(text_keys, text),
                {{"model_type", "clip_text_model"}, {"projection_dim", embed_dim_of(tower)}, {"eos_token_id", end}});
}

Json clip_config(const ModelFile& file) {
  return {{"projection_dim", embed_dim_of(file.model.image)},
          {"text_config", clip_text_config(file)},
          {"vision_config", clip_vision_config(file)}};
}

Json metaclip_2_config(const ModelFile& file) {
  Json out = clip_config(file);
  out["text_config"]["model_type"] = "metaclip_2_text_model";
  out["vision_config"]["model_type"] = "metaclip_2_vision_model";
  return out;
}

constexpr double kSmallEps = 1e-6;

/// The keys of SigLIP 2's NaFlex image tower, which has learned positions of a square of num_patches patches.
void naflex_keys(const ForeignKeys& keys, VitSettings& s) {
  block_keys(keys, s);
  keys.size("patch_size", s.patch_size);
  keys.only<std::int64_t>("num_channels", 3);
  std::int64_t patches = s.image_size.height / s.patch_size.height * (s.image_size.width / s.patch_size.width);
  keys("num_patches", patches);
  const config::Size grid = square_grid(patches);
  s.image_size = {grid.height * s.patch_size.height, grid.width * s.patch_size.width};
  s.position_resampling = "bilinear";
}

TowerSettings siglip_vision(const ForeignConfig& c, void (*keys)(const ForeignKeys&, VitSettings&) = image_keys) {
  VitSettings vit;
  vit.class_token = vit.pre_norm = false;
  vit.patch_bias = true;
  vit.activation = "gelu_tanh";
  vit.norm_eps = kSmallEps;
  vit.mlp_hidden = 3072;
  if (keys == naflex_keys) vit.image_size = 256;
  keys(ForeignKeys(c), vit);
  if (vit.image_size.height == 0) c.refuse("num_patches", "is not the number of patches of a square");
  // Without the attention head (vision_use_head), transformers' classifiers use the mean of the patches.
  if (!c.get("vision_use_head", true)) return {chosen("vit", vit), {"gap"}, {"none"}};
  const Json pool = {{"heads", vit.heads}, {"mlp_hidden", *vit.mlp_hidden}, {"activation", vit.activation}, {"norm_eps", vit.norm_eps}};
  return {chosen("vit", vit), module_with("map", pool), {"none"}};
}

TowerSettings siglip_text(const ForeignConfig& c) {
  TextTransformerSettings text;
  text.width = 768;
  text.heads = 12;
  text.mlp_hidden = 3072;
  text.activation = "gelu_tanh";
  text.norm_eps = kSmallEps;
  text.attention = "bidirectional";
  text.context_length = 64;
  text.vocab_size = 32000;
  text_keys(ForeignKeys(c), text);
  return {chosen("text_transformer", text), {"eos"}, linear_to(c.get("projection_size", text.width), /*bias=*/true)};
}

/// Returns a model of SigLIP, whose images are normalized differently and whose texts include their padding.
ForeignModel as_siglip(ForeignModel model) {
  if (model.image_tower) model.model.preprocessing.mean = model.model.preprocessing.std = {0.5, 0.5, 0.5};
  model.padding_is_text = model.model.text.has_value();
  model.left_out = kCounted;
  return model;
}

/// SigLIP 2's NaFlex models have a linear map of flattened patches instead of SigLIP's convolution.
const TensorRule kLinearPatches = {{"embeddings.patch_embedding.weight"}, {"visual.conv1.weight"}, channels_last};

ForeignModel siglip(const ForeignConfig& c) {
  ForeignModel out;
  const bool naflex = c.get<std::string>("model_type", "") == "siglip2";
  out.model.image = siglip_vision(c.section("vision_config"), naflex ? naflex_keys : image_keys);
  out.model.text = siglip_text(c.section("text_config"));
  if (naflex) out.rules = with_prefixes(Rules{kLinearPatches}, "vision_model.", "");
  out.rules = joined(joined(out.rules, vision_rules()), text_rules({{{"text_model.head.weight"}, {"text_projection"}, transposed},
                                                 {{"text_model.head.bias"}, {"text_projection_bias"}},
                                                 {{"logit_scale"}, {"logit_scale"}, one_ahead},
                                                 {{"logit_bias"}, {"logit_bias"}, one_ahead}}));
  return as_siglip(out);
}

ForeignModel siglip_vision_alone(const ForeignConfig& c) {
  const bool naflex = c.get<std::string>("model_type", "").starts_with("siglip2");
  const Rules tower = naflex ? joined(Rules{kLinearPatches}, vision_tower_rules()) : vision_tower_rules();
  const Rules rules = with_and_without(tower, "vision_model.", c, {"SiglipVisionModel", "Siglip2VisionModel"});
  return as_siglip(image_tower_alone(siglip_vision(c, naflex ? naflex_keys : image_keys), rules, {}));
}

ForeignModel siglip_text_alone(const ForeignConfig& c) {
  const Rules head = {{{"head.weight"}, {"text_projection"}, transposed}, {{"head.bias"}, {"text_projection_bias"}}};
  const Rules rules = with_and_without(joined(text_tower_rules(), head), "text_model.", c, {"SiglipTextModel", "Siglip2TextModel"});
  return as_siglip(text_tower_alone(siglip_text(c), rules, {}));
}

Json siglip_vision_config(const ModelFile& file) {
  return joined(written(image_keys, vit_settings_of(file)),
                {{"model_type", "siglip_vision_model"}, {"vision_use_head", file.model.image.readout.name == "map"}});
}

Json siglip_text_config(const ModelFile& file) {
  const TowerSettings tower = file.model.text.value_or(TowerSettings{});
  const auto text = settings_or_default<TextTransformerSettings>(tower.encoder, "text_transformer");
  return joined(written(text_keys, text), {{"model_type", "siglip_text_model"}, {"projection_size", embed_dim_of(tower)}});
}

Json siglip_config(const ModelFile& file) {
  return {{"text_config", siglip_text_config(file)}, {"vision_config", siglip_vision_config(file)}};
}

Json siglip2_vision_config(const ModelFile& file) {
  return joined(written(naflex_keys, vit_settings_of(file)),
                {{"model_type", "siglip2_vision_model"}, {"vision_use_head", file.model.image.readout.name == "map"}});
}

Json siglip2_config(const ModelFile& file) {
  Json out = siglip_config(file);
  out["text_config"]["model_type"] = "siglip2_text_model";
  out["vision_config"] = siglip2_vision_config(file);
  return out;
}

// A model is written as the first class in this list that supports all of the model's settings.
const Family kClipFamilies[] = {
    {"clip", clip, "CLIPModel", "CLIPImageProcessor", FolderTowers::both, clip_config},
    {"metaclip_2", clip, "MetaClip2Model", "CLIPImageProcessor", FolderTowers::both, metaclip_2_config},
    {"siglip", siglip, "SiglipModel", "SiglipImageProcessor", FolderTowers::both, siglip_config},
    {"siglip2", siglip, "Siglip2Model", kNaflexProcessor, FolderTowers::both, siglip2_config},
    {"clip_vision_model", clip_vision_alone, "CLIPVisionModelWithProjection", "CLIPImageProcessor",
     FolderTowers::image, clip_vision_config},
    {"clip_vision_model", clip_vision_alone, "CLIPVisionModel", "CLIPImageProcessor", FolderTowers::image, clip_vision_config},
    {"siglip_vision_model", siglip_vision_alone, "SiglipVisionModel", "SiglipImageProcessor", FolderTowers::image, siglip_vision_config},
    {"siglip2_vision_model", siglip_vision_alone, "Siglip2VisionModel", kNaflexProcessor, FolderTowers::image, siglip2_vision_config},
    {"metaclip_2_vision_model", clip_vision_alone},
    {"clip_text_model", clip_text_alone, "CLIPTextModelWithProjection", nullptr, FolderTowers::text, clip_text_config},
    {"clip_text_model", clip_text_alone, "CLIPTextModel", nullptr, FolderTowers::text, clip_text_config},
    {"metaclip_2_text_model", clip_text_alone},
    {"siglip_text_model", siglip_text_alone, "SiglipTextModel", nullptr, FolderTowers::text, siglip_text_config},
    {"siglip2_text_model", siglip_text_alone},
};

}  // namespace

std::span<const Family> clip_families() {
  return kClipFamilies;
}

}  // namespace tessera
