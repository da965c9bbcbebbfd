#include "src/models/foreign/transformers.h"

#include <filesystem>

#include <ATen/ATen.h>

#include "src/models/foreign/draft.h"
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

Rules vision_rules() {
  const Rules own = {{{"embeddings.class_embedding"}, {"class_embedding"}},
                     {{"embeddings.patch_embedding.**"}, {"conv1.**"}},
                     {{"embeddings.position_embedding.weight"}, {"positional_embedding"}},
                     {{"pre_layrnorm.**"}, {"ln_pre.**"}},
                     {{"post_layernorm.**"}, {"ln_post.**"}},
                     {{"head.probe"}, {"attn_pool.probe"}, two_ahead},
                     {{"head.mlp.fc1.**"}, {"attn_pool.mlp.c_fc.**"}},
                     {{"head.mlp.fc2.**"}, {"attn_pool.mlp.c_proj.**"}},
                     {{"head.**"}, {"attn_pool.**"}}};
  return joined(with_prefixes(joined(own, layer_rules()), "vision_model.", "visual."),
                {{{"visual_projection.weight"}, {"visual.proj"}, transposed}});
}

/// `last`: of what the two have of their own.
Rules text_rules(const Rules& last) {
  const Rules own = {{{"embeddings.token_embedding.weight"}, {"token_embedding.weight"}},
                     {{"embeddings.position_embedding.weight"}, {"positional_embedding"}},
                     {{"final_layer_norm.**"}, {"ln_final.**"}}};
  return joined(with_prefixes(joined(own, layer_rules()), "text_model.", ""), last);
}

const std::vector<PartLeftOut> kCounted = {{"vision_model.embeddings.position_ids", ""}, {"text_model.embeddings.position_ids", ""}};

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
  // Models from before eos_token_id was stored right say 2, and look for the largest id.
  constexpr std::int64_t kOldEnd = 2, kClipEnd = 49407;
  if (const auto id = c.get<std::int64_t>("eos_token_id", kClipEnd); id != kOldEnd) eos.eos_id = id;
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

Json clip_vision_config(const ModelSettings& model) {
  const auto vit = settings_or_default<VitSettings>(model.image.encoder, "vit");
  return joined(blocks_config(vit), pictures_config(vit),
                {{"model_type", "clip_vision_model"}, {"projection_dim", embed_dim_of(model.image)}});
}

Json clip_config(const ModelFile& file) {
  const TowerSettings tower = file.model.text.value_or(TowerSettings{});
  const auto text = settings_or_default<TextTransformerSettings>(tower.encoder, "text_transformer");
  const auto eos = settings_or_default<EosSettings>(tower.readout, "eos");
  // 2 stands for the largest id; CLIP's own tokens end with theirs.
  const std::int64_t end = eos.eos_id.value_or(eos.position == "ids" && file.tokenizer.name != "clip-bpe" ? 2 : 49407);
  const Json texts = joined(blocks_config(text), {{"model_type", "clip_text_model"}, {"projection_dim", embed_dim_of(tower)}},
                            {{"max_position_embeddings", text.context_length}, {"vocab_size", text.vocab_size}, {"eos_token_id", end}});
  return {{"projection_dim", embed_dim_of(file.model.image)}, {"text_config", texts}, {"vision_config", clip_vision_config(file.model)}};
}

Json clip_vision_alone_config(const ModelFile& file) {
  return clip_vision_config(file.model);
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
  c.expect("vision_use_head", true);
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

Json siglip_vision_config(const ModelFile& file) {
  const auto vit = settings_or_default<VitSettings>(file.model.image.encoder, "vit");
  return joined(blocks_config(vit), pictures_config(vit), {{"model_type", "siglip_vision_model"}, {"vision_use_head", true}});
}

Json siglip_config(const ModelFile& file) {
  const TowerSettings tower = file.model.text.value_or(TowerSettings{});
  const auto text = settings_or_default<TextTransformerSettings>(tower.encoder, "text_transformer");
  const Json texts = joined(blocks_config(text), {{"model_type", "siglip_text_model"}, {"projection_size", embed_dim_of(tower)}},
                            {{"max_position_embeddings", text.context_length}, {"vocab_size", text.vocab_size}});
  return {{"text_config", texts}, {"vision_config", siglip_vision_config(file)}};
}

ForeignModel vision_alone(ForeignModel whole) {
  whole.model.text.reset();
  whole.rules = vision_rules();
  return whole;
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
  out.rules = dino_rules(joined(layer, vit.mlp == "gated" ? gated : plain), "encoder.layer.*.",
                         "embeddings.patch_embeddings.projection", "layernorm");
  out.left_out = {{"embeddings.mask_token", "the token of masked patches"}};
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
  const bool query = c.get("query_bias", true), key = c.get("key_bias", false), value = c.get("value_bias", true);
  if (query != value || (key && !query)) c.refuse("query_bias", "leaves other biases out than our models can");
  vit.qkv_bias = key ? "all" : query ? "no_key" : "none";
  c.expect("proj_bias", true);
  c.expect("mlp_bias", true);
  if (c.get("use_gated_mlp", false)) vit.mlp = "gated";
  const Rules layer = {{{"attention.q_proj.weight", "attention.k_proj.weight", "attention.v_proj.weight"}, {"attn.in_proj_weight"}},
                       {{"attention.q_proj.bias", "attention.k_proj.bias", "attention.v_proj.bias"}, {"attn.in_proj_bias"}},
                       {{"attention.q_proj.bias"}, {"attn.q_bias"}},
                       {{"attention.v_proj.bias"}, {"attn.v_bias"}},
                       {{"attention.o_proj.**"}, {"attn.out_proj.**"}},
                       {{"mlp.gate_proj.**"}, {"mlp.c_gate.**"}},
                       {{"mlp.up_proj.**"}, {"mlp.c_fc.**"}},
                       {{"mlp.down_proj.**"}, {"mlp.c_proj.**"}}};
  ForeignModel out;
  out.model.text.reset();
  out.model.image = {chosen("vit", vit), {"cls"}, {"none"}};
  out.rules = dino_rules(layer, "layer.*.", "embeddings.patch_embeddings", "norm");
  out.left_out = {{"embeddings.mask_token", "the token of masked patches"}};
  return out;
}

Json dinov3_config(const ModelFile& file) {
  const auto vit = settings_or_default<VitSettings>(file.model.image.encoder, "vit");
  const RotarySettings rotary = vit.rotary.value_or(RotarySettings{});
  const bool biases = vit.qkv_bias != "none";
  Json out = joined(blocks_config(vit), pictures_config(vit),
                    {{"num_register_tokens", vit.registers}, {"use_gated_mlp", vit.mlp == "gated"}, {"query_bias", biases},
                     {"key_bias", vit.qkv_bias == "all"}, {"value_bias", biases}, {"rope_theta", rotary.base}});
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

void read_preprocessing(Preprocessing& p, const std::string& folder) {
  const std::string path = folder + "/preprocessor_config.json";
  if (!std::filesystem::is_regular_file(path)) return;
  const ForeignConfig c = ForeignConfig::of_file(path);
  p.mean = channels(c, "image_mean", p.mean);
  p.std = channels(c, "image_std", p.std);
  constexpr int kBilinear = 2, kBicubic = 3;
  const int resample = c.get("resample", kBicubic);
  if (resample != kBilinear && resample != kBicubic) c.refuse("resample", "is neither 2 (bilinear) nor 3 (bicubic)");
  p.interpolation = resample == kBilinear ? "bilinear" : "bicubic";
  const bool crops = c.get("do_center_crop", c.has("crop_size"));
  const auto size_at = [&](const std::string& key) {
    if (!c.has(key) || !c.json().at(key).is_object()) return c.size(key, p.image_size);
    const ForeignConfig size = c.section(key);
    if (size.has("shortest_edge")) return config::Size(size.get<std::int64_t>("shortest_edge", 0));
    return config::Size(size.get<std::int64_t>("height", 0), size.get<std::int64_t>("width", 0));
  };
  const bool keeps_ratio = c.has("size") && (!c.json().at("size").is_object() || c.section("size").has("shortest_edge"));
  p.resize_mode = keeps_ratio ? "shortest" : "squash";
  p.image_size = size_at(crops ? "crop_size" : "size");
}

Json preprocessor_config(const Preprocessing& p, const char* processor) {
  constexpr int kBilinear = 2, kBicubic = 3;
  constexpr double kScale = 1.0 / 255;
  const Json size = {{"height", p.image_size.height}, {"width", p.image_size.width}};
  Json out = {{"image_processor_type", processor}, {"do_resize", true},   {"resample", p.interpolation == "bilinear" ? kBilinear : kBicubic},
              {"do_rescale", true},                {"rescale_factor", kScale}, {"do_normalize", true},
              {"image_mean", p.mean},              {"image_std", p.std},  {"do_convert_rgb", true}};
  const bool crops = p.resize_mode == "shortest";
  out["do_center_crop"] = crops;
  out["size"] = crops ? Json{{"shortest_edge", std::min(p.image_size.height, p.image_size.width)}} : size;
  if (crops) out["crop_size"] = size;
  return out;
}

/// What transformers has a class for.
struct Family {
  const char* model_type;
  const char* architecture;
  const char* processor;
  bool texts;
  Json (*config)(const ModelFile&);
  int mask_token_dims;  // of a token that our models lack, [1, ..., width]; 0: none
};

constexpr Family kFamilies[] = {
    {"clip", "CLIPModel", "CLIPImageProcessor", true, clip_config, 0},
    {"siglip", "SiglipModel", "SiglipImageProcessor", true, siglip_config, 0},
    {"clip_vision_model", "CLIPVisionModelWithProjection", "CLIPImageProcessor", false, clip_vision_alone_config, 0},
    {"siglip_vision_model", "SiglipVisionModel", "SiglipImageProcessor", false, siglip_vision_config, 0},
    {"dinov2", "Dinov2Model", "BitImageProcessor", false, dinov2_config, 2},
    {"dinov2_with_registers", "Dinov2WithRegistersModel", "BitImageProcessor", false, dinov2_with_registers_config, 2},
    {"dinov3_vit", "DINOv3ViTModel", "DINOv3ViTImageProcessorFast", false, dinov3_config, 3},
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
    if (family.texts != file.model.text.has_value()) continue;
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
  ForeignModel out = [&] {
    if (kind == "clip") return clip(config);
    if (kind == "siglip") return siglip(config);
    if (kind == "clip_vision_model") {
      const nlohmann::json whole = {{"vision_config", config.json()}, {"projection_dim", config.get<std::int64_t>("projection_dim", 512)}};
      return vision_alone(clip({whole, config.path()}));
    }
    if (kind == "siglip_vision_model") {
      nlohmann::json whole = {{"vision_config", config.json()}};
      return vision_alone(siglip({whole, config.path()}));
    }
    if (kind == "dinov2") return dinov2(config, false);
    if (kind == "dinov2_with_registers") return dinov2(config, true);
    if (kind == "dinov3_vit") return dinov3(config);
    config.refuse("model_type", "is no family that is read here: clip, clip_vision_model, siglip, siglip_vision_model, dinov2, "
                                "dinov2_with_registers and dinov3_vit are (docs/pretrained.md)");
  }();
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
