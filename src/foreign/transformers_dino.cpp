#include "src/foreign/draft.h"
#include "src/foreign/transformers_family.h"

namespace tessera {
namespace {

using enum TensorChange;

constexpr double kDinoEps = 1e-6;

/// Returns the rules that DINOv2, DINOv3 and ViT share. The parameters `layers`, `patches` and `norm` are the parts of the tensor names
/// that differ between these families.
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

/// Returns the hidden width of Dinov2's gated MLP: two thirds of width * ratio, rounded up to a multiple of 8.
std::int64_t swiglu_width(std::int64_t width, std::int64_t ratio) {
  constexpr std::int64_t kMultiple = 8;
  return (width * ratio * 2 / 3 + kMultiple - 1) / kMultiple * kMultiple;
}

/// Returns the rules for attention whose maps have the names that they have in ViT and DINOv2.
Rules vit_attention() {
  return attention_rules("attention.attention.query", "attention.attention.key", "attention.attention.value", "attention.output.dense");
}

ForeignModel dinov2(const ForeignConfig& c, bool registers) {
  VitSettings vit;
  vit.norm_eps = kDinoEps;
  vit.patch_size = 14;
  vit.pre_norm = false;
  vit.patch_bias = true;
  vit.layer_scale_init = c.get("layerscale_value", 1.0);
  vit.registers = registers ? c.get<std::int64_t>("num_register_tokens", 4) : 0;
  vit.position_resampling = registers ? "antialiased" : "bicubic";
  image_keys(ForeignKeys(c), vit);
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
  const Rules layer = joined(vit_attention(), vit.mlp == "gated" ? gated : plain);
  const Rules rules = with_and_without(dino_rules(layer, "encoder.layer.*.", "embeddings.patch_embeddings.projection", "layernorm"),
                                       registers ? "dinov2_with_registers." : "dinov2.", c, {"Dinov2Model", "Dinov2WithRegistersModel"});
  return image_tower_alone({chosen("vit", vit), {"cls"}, {"none"}}, rules,
                           {{"embeddings.mask_token", "the token of masked patches"},
                            {"dinov2.embeddings.mask_token", "the token of masked patches"},
                            {"dinov2_with_registers.embeddings.mask_token", "the token of masked patches"},
                            {"classifier.**", "the classifier"}});
}

/// Reads a ViT in the form that Google published.
ForeignModel vit(const ForeignConfig& c) {
  VitSettings vit;
  vit.norm_eps = 1e-12;
  vit.pre_norm = false;
  vit.patch_bias = true;
  vit.position_resampling = "bicubic";
  vit.mlp_hidden = 3072;
  image_keys(ForeignKeys(c), vit);
  if (!c.get("qkv_bias", true)) vit.qkv_bias = "none";
  const Rules layer = joined(vit_attention(), {{{"layernorm_before.**"}, {"ln_1.**"}},
                                                {{"layernorm_after.**"}, {"ln_2.**"}},
                                                {{"intermediate.dense.**"}, {"mlp.c_fc.**"}},
                                                {{"output.dense.**"}, {"mlp.c_proj.**"}}});
  const Rules rules = dino_rules(layer, "encoder.layer.*.", "embeddings.patch_embeddings.projection", "layernorm");
  ForeignModel out = image_tower_alone({chosen("vit", vit), {"cls"}, {"none"}}, with_and_without(rules, "vit.", c, {"ViTModel"}),
                                       {{"pooler.**", "the layer after the class token"},
                                        {"vit.pooler.**", "the layer after the class token"},
                                        {"embeddings.mask_token", "the token of masked patches"},
                                        {"vit.embeddings.mask_token", "the token of masked patches"},
                                        {"decoder.**", "the decoder of masked patches"},
                                        {"classifier.**", "the classifier"}});
  out.model.preprocessing.mean = out.model.preprocessing.std = {0.5, 0.5, 0.5};
  return out;
}

ForeignModel dinov2_plain(const ForeignConfig& c) {
  return dinov2(c, /*registers=*/false);
}

ForeignModel dinov2_with_registers(const ForeignConfig& c) {
  return dinov2(c, /*registers=*/true);
}

Json vit_config(const ModelFile& file) {
  return joined(written(image_keys, vit_settings_of(file)), {{"qkv_bias", vit_settings_of(file).qkv_bias == "all"}});
}

Json dinov2_config(const ModelFile& file) {
  const VitSettings vit = vit_settings_of(file);
  const bool gated = vit.mlp == "gated";
  // The file has an integer ratio. From this ratio, transformers computes the gated width and rounds it.
  const std::int64_t ratio = (mlp_width(vit) * (gated ? 3 : 2) / 2 + vit.width / 2) / vit.width;
  Json out = joined(vit_config(file), {{"mlp_ratio", ratio}, {"use_swiglu_ffn", gated}, {"layerscale_value", 1.0}});
  out.erase("intermediate_size");
  if (gated) out["hidden_act"] = "gelu";  // not used
  return out;
}

Json dinov2_with_registers_config(const ModelFile& file) {
  return joined(dinov2_config(file), {{"num_register_tokens", vit_settings_of(file).registers}});
}

/// Returns the value of the setting qkv_bias. The arguments state whether query, key and value have a bias.
std::string biases_named(bool query, bool key, bool value) {
  const int count = int{query} + int{key} + int{value};
  if (count == 3) return "all";
  if (count == 2) return !query ? "no_query" : !key ? "no_key" : "no_value";
  return query ? "query" : key ? "key" : value ? "value" : "none";
}

/// The keys of DINOv3's ViT. `vit.rotary` must be set.
void dinov3_keys(const ForeignKeys& keys, VitSettings& vit) {
  keys("num_register_tokens", vit.registers);
  keys("rope_theta", vit.rotary->base);
  image_keys(keys, vit);
  const auto biased = [&](const std::string& part) {
    return vit.qkv_bias == "all" || vit.qkv_bias == part || (vit.qkv_bias.starts_with("no_") && vit.qkv_bias != "no_" + part);
  };
  bool query = biased("query"), key = biased("key"), value = biased("value"), gated = vit.mlp == "gated";
  keys("query_bias", query);
  keys("key_bias", key);
  keys("value_bias", value);
  vit.qkv_bias = biases_named(query, key, value);
  keys("proj_bias", vit.out_bias);
  keys("mlp_bias", vit.mlp_bias);
  keys("use_gated_mlp", gated);
  if (gated) vit.mlp = "gated";
}

ForeignModel dinov3(const ForeignConfig& c) {
  VitSettings vit;
  vit.width = 384;
  vit.heads = 6;
  vit.mlp_hidden = 1536;
  vit.pre_norm = false;
  vit.patch_bias = true;
  vit.qkv_bias = "no_key";
  vit.layer_scale_init = c.get("layerscale_value", 1.0);
  vit.position_embedding = "none";
  RotarySettings& rotary = vit.rotary.emplace();
  rotary.base = 100;
  rotary.coordinates = "centered";
  rotary.pairs = "halves";
  if (c.has("pos_embed_shift")) rotary.shift = c.get("pos_embed_shift", 0.0);
  if (c.has("pos_embed_jitter")) rotary.jitter = c.get("pos_embed_jitter", 1.0);
  if (c.has("pos_embed_rescale")) rotary.rescale = c.get("pos_embed_rescale", 2.0);
  dinov3_keys(ForeignKeys(c), vit);
  if (c.has("rope_parameters")) rotary.base = c.section("rope_parameters").get("rope_theta", rotary.base);
  const Rules layer = joined(attention_rules("attention.q_proj", "attention.k_proj", "attention.v_proj", "attention.o_proj"),
                             {{{"attention.q_proj.bias"}, {"attn.q_bias"}},
                              {{"attention.k_proj.bias"}, {"attn.k_bias"}},
                              {{"attention.v_proj.bias"}, {"attn.v_bias"}},
                              {{"mlp.gate_proj.**"}, {"mlp.c_gate.**"}},
                              {{"mlp.up_proj.**"}, {"mlp.c_fc.**"}},
                              {{"mlp.down_proj.**"}, {"mlp.c_proj.**"}}});
  // If there are no registers, transformers writes an empty tensor for them.
  return image_tower_alone({chosen("vit", vit), {"cls"}, {"none"}}, dino_rules(layer, "layer.*.", "embeddings.patch_embeddings", "norm"),
                           {{"embeddings.mask_token", "the token of masked patches"}, {"embeddings.register_tokens", ""}});
}

Json dinov3_config(const ModelFile& file) {
  VitSettings vit = vit_settings_of(file);
  if (!vit.rotary) vit.rotary.emplace();
  Json out = written(dinov3_keys, vit);
  // By default, transformers augments positions in training; null turns that off.
  const std::pair<const char*, std::optional<double>> augmentations[] = {
      {"pos_embed_shift", vit.rotary->shift}, {"pos_embed_jitter", vit.rotary->jitter}, {"pos_embed_rescale", vit.rotary->rescale}};
  for (const auto& [key, value] : augmentations) out[key] = value ? Json(*value) : Json(nullptr);
  return out;
}

const Family kDinoFamilies[] = {
    {"dinov2", dinov2_plain, "Dinov2Model", "BitImageProcessor", FolderTowers::image, dinov2_config, 2},
    {"dinov2_with_registers", dinov2_with_registers, "Dinov2WithRegistersModel", "BitImageProcessor",
     FolderTowers::image, dinov2_with_registers_config, 2},
    {"dinov3_vit", dinov3, "DINOv3ViTModel", "DINOv3ViTImageProcessorFast", FolderTowers::image, dinov3_config, 3},
    {"vit", vit, "ViTModel", "ViTImageProcessor", FolderTowers::image, vit_config},
};

}  // namespace

std::span<const Family> dino_families() {
  return kDinoFamilies;
}

}  // namespace tessera
