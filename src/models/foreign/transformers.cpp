#include "src/models/foreign/transformers.h"

#include <cmath>
#include <filesystem>

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

}  // namespace

ForeignModel transformers_model(const ForeignConfig& config, const std::string& folder) {
  const auto kind = config.get<std::string>("model_type", "");
  ForeignModel out = [&] {
    if (kind == "clip") return clip(config);
    if (kind == "siglip") return siglip(config);
    if (kind == "siglip_vision_model") {
      nlohmann::json whole = {{"vision_config", config.json()}};
      return vision_alone(siglip({whole, config.path()}));
    }
    if (kind == "dinov2") return dinov2(config, false);
    if (kind == "dinov2_with_registers") return dinov2(config, true);
    if (kind == "dinov3_vit") return dinov3(config);
    config.refuse("model_type", "is no family that is read here: clip, siglip, siglip_vision_model, dinov2, "
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
