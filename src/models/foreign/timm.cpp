#include "src/models/foreign/timm.h"

#include <cmath>
#include <set>

#include <tessera/base/text.h>
#include <tessera/config/shipped.h>
#include <tessera/models/convnext.h>
#include <tessera/models/mlp_head.h>
#include <tessera/models/projections.h>
#include <tessera/models/readouts/map_pool.h>
#include <tessera/models/timm_resnet.h>
#include <tessera/models/vit.h>

namespace tessera {
namespace {

using enum TensorChange;

/// The table's row of a name. Throws UserError for a name that is not there or refused.
ForeignConfig row_of(const std::string& name, const std::string& path) {
  static const ForeignConfig table = ForeignConfig::of_file(config::shipped_folder() + "/architectures/timm.json");
  const ForeignConfig models = table.section("models");
  if (!models.has(name)) {
    std::vector<std::string> known;
    for (const auto& [key, row] : models.json().items()) known.push_back(key);
    const std::string nearest = nearest_name(name, known);
    user_error(path, ": no architecture of timm's named ", name, " is known here", nearest.empty() ? "" : ": did you mean " + nearest + "?");
  }
  ForeignConfig row = models.section(name);
  if (row.has("refused"))
    user_error(path, ": timm's ", name, " is not read: ", row.get<std::string>("refused", ""));
  return row;
}

std::vector<TensorRule> vit_rules(const std::string& packed) {
  const std::vector<std::string> halves = packed == "last" ? std::vector<std::string>{"c_fc", "c_gate"} : std::vector<std::string>{"c_gate", "c_fc"};
  const auto half = [&](const char* what) {
    return std::vector<std::string>{concat("mlp.", halves[0], ".", what), concat("mlp.", halves[1], ".", what)};
  };
  std::vector<TensorRule> rules = with_prefixes(
      {{{"norm1.**"}, {"ln_1.**"}},
       {{"norm2.**"}, {"ln_2.**"}},
       {{"attn.qkv.weight"}, {"attn.in_proj_weight"}},
       {{"attn.qkv.bias"}, {"attn.in_proj_bias"}},
       {{"attn.q_proj.weight", "attn.k_proj.weight", "attn.v_proj.weight"}, {"attn.in_proj_weight"}},
       {{"attn.q_proj.bias", "attn.k_proj.bias", "attn.v_proj.bias"}, {"attn.in_proj_bias"}},
       {{"attn.q_bias"}, {"attn.q_bias"}},
       {{"attn.v_bias"}, {"attn.v_bias"}},
       {{"attn.q_proj.bias"}, {"attn.q_bias"}},
       {{"attn.v_proj.bias"}, {"attn.v_bias"}},
       {{"attn.proj.**"}, {"attn.out_proj.**"}},
       {{"attn.**"}, {"attn.**"}},
       {{"ls1.gamma"}, {"ls_1.gamma"}},
       {{"ls2.gamma"}, {"ls_2.gamma"}},
       {{"gamma_1"}, {"ls_1.gamma"}},
       {{"gamma_2"}, {"ls_2.gamma"}},
       {{"mlp.fc1_g.**"}, {"mlp.c_gate.**"}},
       {{"mlp.fc1_x.**"}, {"mlp.c_fc.**"}},
       {{"mlp.fc1.weight"}, half("weight")},
       {{"mlp.fc1.bias"}, half("bias")},
       {{"mlp.fc1.**"}, {"mlp.c_fc.**"}},
       {{"mlp.fc2.**"}, {"mlp.c_proj.**"}},
       {{"mlp.w0.**"}, {"mlp.c_gate.**"}},
       {{"mlp.w1.**"}, {"mlp.c_fc.**"}},
       {{"mlp.w2.**"}, {"mlp.c_proj.**"}},
       {{"mlp.norm.**"}, {"mlp.norm_in.**"}},
       {{"mlp.norm.**"}, {"mlp.norm.**"}}},
      "blocks.*.", "transformer.resblocks.*.");
  const std::vector<TensorRule> pool = with_prefixes({{{"latent"}, {"probe"}, two_ahead},
                                                      {{"q.weight", "kv.weight"}, {"attention.in_proj_weight"}, same, {1, 2}},
                                                      {{"q.bias", "kv.bias"}, {"attention.in_proj_bias"}, same, {1, 2}},
                                                      {{"proj.**"}, {"attention.out_proj.**"}},
                                                      {{"norm.**"}, {"layernorm.**"}},
                                                      {{"mlp.fc1.**"}, {"mlp.c_fc.**"}},
                                                      {{"mlp.fc2.**"}, {"mlp.c_proj.**"}}},
                                                     "attn_pool.", "attn_pool.");
  const std::vector<TensorRule> own = {{{"patch_embed.proj.**"}, {"conv1.**"}},
                                       {{"patch_embed.backbone.**"}, {"conv1.**"}},
                                       {{"cls_token"}, {"class_embedding"}, two_ahead},
                                       {{"reg_token"}, {"register_embedding"}, one_ahead},
                                       {{"pos_embed"}, {"positional_embedding"}, one_ahead},
                                       {{"norm_pre.**"}, {"ln_pre.**"}},
                                       {{"norm.**"}, {"ln_post.**"}},
                                       {{"fc_norm.**"}, {"ln_post.**"}},
                                       {{"head.weight"}, {"proj"}, transposed},
                                       {{"head.bias"}, {"proj_bias"}}};
  rules.insert(rules.end(), pool.begin(), pool.end());
  rules.insert(rules.end(), own.begin(), own.end());
  return rules;
}

RotarySettings rotary_of(const ForeignConfig& c, config::Size grid) {
  RotarySettings s;
  s.base = c.get("base", s.base);
  s.coordinates = c.get("coordinates", s.coordinates);
  s.offset = c.get("offset", s.offset);
  s.order = c.get("order", s.order);
  s.pairs = c.get("pairs", s.pairs);
  if (c.has("reference")) s.reference = c.size("reference", grid);
  for (const auto& [key, value] : {std::pair{"shift", &s.shift}, {"jitter", &s.jitter}, {"rescale", &s.rescale}})
    if (c.has(key)) *value = c.get(key, 0.0);
  return s;
}

VitSettings vit_of(const ForeignConfig& row, const ForeignConfig& arguments) {
  VitSettings s;
  s.image_size = arguments.size("img_size", row.size("image_size", s.image_size));
  s.patch_size = row.size("patch_size", s.patch_size);
  s.partial_patches = has_partial_patches(s);
  s.stem = row.get("stem", s.stem);
  s.stem_widths = row.get("stem_widths", s.stem_widths);
  s.block_norm = row.get("block_norm", s.block_norm);
  s.width = row.get("width", s.width);
  s.layers = arguments.get("depth", row.get("layers", s.layers));
  s.heads = row.get("heads", s.heads);
  s.mlp_hidden = row.get("mlp_hidden", 4 * s.width);
  s.activation = row.get("activation", s.activation);
  s.norm_eps = row.get("norm_eps", s.norm_eps);
  s.class_token = row.get("class_token", s.class_token);
  s.registers = row.get("registers", s.registers);
  s.pre_norm = row.get("pre_norm", false);
  s.patch_bias = row.get("patch_bias", true);
  s.position_embedding = row.get("position_embedding", s.position_embedding);
  s.prefix_positions = row.get("prefix_positions", s.prefix_positions);
  s.mlp = row.get("mlp", s.mlp);
  s.mlp_norm = row.get("mlp_norm", s.mlp_norm);
  s.mlp_input_norm = row.get("mlp_input_norm", s.mlp_input_norm);
  s.attention_norm = row.get("attention_norm", s.attention_norm);
  s.qk_norm = row.get("qk_norm", s.qk_norm);
  s.qkv_bias = row.get("qkv_bias", s.qkv_bias);
  s.final_norm = row.get("final_norm", s.final_norm);
  if (row.has("layer_scale")) s.layer_scale_init = row.get("layer_scale", 1.0);
  const config::Size grid(s.image_size.height / s.patch_size.height, s.image_size.width / s.patch_size.width);
  if (row.has("rotary")) s.rotary = rotary_of(row.section("rotary"), grid);
  return s;
}

/// Of a row, or of the configuration that comes with weights, on top of `p`.
Preprocessing preprocessing_of(const ForeignConfig& c, Preprocessing p) {
  p.mean = c.get("mean", p.mean);
  p.std = c.get("std", p.std);
  p.interpolation = c.get("interpolation", p.interpolation);
  if (p.interpolation != "bicubic" && p.interpolation != "bilinear")
    c.refuse("interpolation", "our pictures cannot be resized by: bicubic and bilinear are read");
  p.crop_pct = c.get("crop_pct", p.crop_pct);
  if (!(p.crop_pct > 0 && p.crop_pct <= 1)) c.refuse("crop_pct", "is not above 0 and at most 1");
  const auto mode = c.get<std::string>("crop_mode", "center");
  if (mode != "center" && mode != "squash" && mode != "border") c.refuse("crop_mode", "is none of center, squash and border");
  p.resize_mode = mode == "squash" ? "squash" : mode == "border" ? "longest" : "shortest";
  if (mode != "border") return p;
  constexpr double kLevels = 255;  // timm fills with the mean color, ours with its grey
  p.fill_color = static_cast<std::int64_t>(std::nearbyint(kLevels * (p.mean[0] + p.mean[1] + p.mean[2]) / 3));
  return p;
}

Preprocessing preprocessing_of(const ForeignConfig& row, const config::Size& size) {
  Preprocessing p;
  p.image_size = size;
  return preprocessing_of(row, p);
}

/// A row of settings of ours as they are, for pictures of `image_size`.
config::ModuleSettings encoder_of(const ForeignConfig& row, const std::string& name, const config::Size& image_size) {
  config::ModuleSettings out{name, config::from_json(row.section("settings").json(), row.path())};
  out.settings.set("image_size", config::Value<config::Size>::dump(image_size));
  return out;
}

/// How the tokens of `vit` become a vector: the row's own pooling, or the head's.
config::ModuleSettings readout_of(const ForeignConfig& row, const std::string& pool) {
  if (pool == "map") {
    if (!row.has("map")) row.refuse("pool", "has no attention pool, but map was asked for");
    const ForeignConfig map = row.section("map");
    MapPoolSettings s;
    s.heads = map.get("heads", s.heads);
    s.mlp_hidden = map.get("mlp_hidden", s.mlp_hidden);
    s.activation = map.get("activation", s.activation);
    s.norm_eps = map.get("norm_eps", s.norm_eps);
    return chosen("map", s);
  }
  if (pool == "token") return {"cls"};
  if (pool == "avg") return {"gap"};
  row.refuse("pool", concat("is pooled by ", pool, ": token, avg and map are read"));
}

config::ModuleSettings projection_of(const TimmHead& head) {
  LinearProjectionSettings s;
  if (head.mlp > 0) {
    MlpProjectionSettings mlp;
    mlp.embed_dim = head.mlp;
    mlp.inner_dim = 2 * head.mlp;
    mlp.norm = "none";
    mlp.activation = "gelu";
    mlp.bias = head.bias;
    return chosen("mlp", mlp);
  }
  s.embed_dim = head.classifier.value_or(head.linear);
  s.bias = head.classifier.has_value() || head.bias;
  return s.embed_dim > 0 ? chosen("linear", s) : config::ModuleSettings{"none"};
}

/// create_model's arguments that settings follow from, or that change nothing here.
void check_arguments(const ForeignConfig& arguments) {
  static const std::set<std::string> known = {"img_size", "depth", "num_classes", "in_chans", "global_pool", "drop_rate",
                                              "drop_path_rate", "patch_drop_rate", "pos_drop_rate", "proj_drop_rate",
                                              "attn_drop_rate", "dynamic_img_size", "dynamic_img_pad", "weight_init"};
  for (const auto& [key, value] : arguments.json().items())
    if (!known.contains(key)) arguments.refuse(key, "is an argument of timm's that is not read here");
  arguments.expect<std::int64_t>("in_chans", 3);
}

/// ConvNeXt or ResNet, whose parameters have timm's names here, too.
TimmTower convolutional_tower(const ForeignConfig& row, const ForeignConfig& arguments, const TimmHead& head) {
  if (!head.pool.empty() && head.pool != "avg") row.refuse("pool", concat("is pooled by ", head.pool, ": avg is read"));
  TimmTower out;
  const config::Size size = arguments.size("img_size", row.size("image_size", 224));
  out.tower = {encoder_of(row, row.get<std::string>("encoder", ""), size), {"gap"}, projection_of(head)};
  out.preprocessing = preprocessing_of(row, size);
  out.rules = {{{"head.fc.weight"}, {"proj"}, transposed}, {{"head.fc.bias"}, {"proj_bias"}},
               {{"fc.weight"}, {"proj"}, transposed}, {{"fc.bias"}, {"proj_bias"}}, {{"**"}, {"**"}}};
  return out;
}

}  // namespace

TimmTower timm_tower(const std::string& name, const ForeignConfig& arguments, const TimmHead& head, const std::string& path) {
  const ForeignConfig row = row_of(name, path);
  check_arguments(arguments);
  if (row.has("encoder")) return convolutional_tower(row, arguments, head);
  VitSettings vit = vit_of(row, arguments);
  const auto usual = row.get<std::string>("pool", "token");
  const std::string pool = head.pool.empty() ? usual : head.pool;
  // timm makes the last norm to fit the pooling; where OpenCLIP adds its own projection, it only changes the pooling.
  if (pool != usual && head.linear == 0 && head.mlp == 0 && vit.final_norm != "none") vit.final_norm = pool == "avg" ? "pooled" : "tokens";
  TimmTower out;
  out.tower = {chosen("vit", vit), readout_of(row, pool), projection_of(head)};
  out.preprocessing = preprocessing_of(row, vit.image_size);
  out.rules = vit_rules(row.get<std::string>("packed", "first"));
  return out;
}

ForeignModel timm_model(const ForeignConfig& config) {
  constexpr double kUsualShare = 0.875;  // timm's DEFAULT_CROP_PCT
  TimmHead head;
  head.pool = config.section("model_args").get<std::string>("global_pool", config.get<std::string>("global_pool", ""));
  const ForeignConfig pretrained = config.section("pretrained_cfg");
  nlohmann::json arguments = config.section("model_args").json();
  if (!arguments.contains("img_size") && pretrained.has("input_size") && !pretrained.get("fixed_input_size", false))
    arguments["img_size"] = {pretrained.json().at("input_size").at(1), pretrained.json().at("input_size").at(2)};
  const TimmTower timm = timm_tower(config.get<std::string>("architecture", ""), {arguments, config.path(), "model_args."},
                                    head, config.path());
  ForeignModel out;
  out.library = "timm";
  out.model.image = timm.tower;
  out.model.text.reset();
  out.rules = with_prefixes(timm.rules, "", "visual.");
  out.left_out = {{"head.**", "the classifier"}, {"fc.**", "the classifier"}, {"head.fc.**", "the classifier"}};
  Preprocessing usual = timm.preprocessing;
  usual.crop_pct = kUsualShare;
  out.model.preprocessing = preprocessing_of(pretrained, usual);
  return out;
}

}  // namespace tessera
