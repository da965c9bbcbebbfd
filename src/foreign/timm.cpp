#include "src/foreign/timm.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "src/foreign/draft.h"
#include "src/foreign/same_model.h"
#include "src/models/vit.h"
#include <tessera/base/text.h>
#include <tessera/config/shipped.h>

namespace tessera {
namespace {

using enum TensorChange;

const ForeignConfig& timm_table() {
  static const ForeignConfig models = ForeignConfig::of_file(config::shipped_folder() + "/architectures/timm.json").section("models");
  return models;
}

/// Returns the row for a name in our table of timm's models. Throws UserError if the table lacks the name or marks it as refused.
ForeignConfig row_of(const std::string& name, const std::string& path) {
  const ForeignConfig& models = timm_table();
  if (!models.has(name)) {
    std::vector<std::string> known;
    for (const auto& [key, row] : models.json().items()) known.push_back(key);
    const std::string nearest = nearest_name(name, known);
    user_error(path, ": no timm architecture named ", name, " is known here", nearest.empty() ? "" : ": did you mean " + nearest + "?");
  }
  ForeignConfig row = models.section(name);
  if (row.has("refused"))
    user_error(path, ": timm's ", name, " is not read: ", row.get<std::string>("refused", ""));
  return row;
}

/// Whether a row is a NaFlexVit: it takes images of any shape, and resizes positions of a square to the grid of each image.
bool is_naflex(const ForeignConfig& row) {
  return row.get("naflex", false);
}

/// Returns the rules for a vision transformer. When reading, a tensor may have the name that any of timm's classes gives it. When writing,
/// the first rule that matches determines the name, so the rules with the names of the class that the table's row belongs to come first.
std::vector<TensorRule> vit_rules(const ForeignConfig& row, const VitSettings& vit) {
  const bool separate = row.get("separate_qkv", false), gamma = row.get("gamma_names", false), naflex = is_naflex(row);
  const bool plain = vit.mlp == "plain";
  const bool packed = !plain && row.has("packed"), last = row.get<std::string>("packed", "first") == "last";
  const bool swiglu = !plain && !packed && vit.mlp_input_norm, separate_halves = !plain && !packed && !swiglu;
  const auto halves = [&](const std::string& what) {
    return std::vector<std::string>{(last ? "mlp.c_fc." : "mlp.c_gate.") + what, (last ? "mlp.c_gate." : "mlp.c_fc.") + what};
  };
  /// A rule, and whether the row's class has its names.
  struct Choice {
    TensorRule rule;
    bool of_class = false;
  };
  const std::vector<Choice> of_blocks = {
      {{{"norm1.**"}, {"ln_1.**"}}},
      {{{"norm2.**"}, {"ln_2.**"}}},
      {{{"attn.qkv.weight"}, {"attn.in_proj_weight"}}},
      {{{"attn.qkv.bias"}, {"attn.in_proj_bias"}}},
      {{{"attn.q_proj.weight", "attn.k_proj.weight", "attn.v_proj.weight"}, {"attn.in_proj_weight"}}, separate},
      {{{"attn.q_proj.bias", "attn.k_proj.bias", "attn.v_proj.bias"}, {"attn.in_proj_bias"}}, separate},
      {{{"attn.q_bias"}, {"attn.q_bias"}}},
      {{{"attn.v_bias"}, {"attn.v_bias"}}},
      {{{"attn.q_proj.bias"}, {"attn.q_bias"}}, separate},
      {{{"attn.v_proj.bias"}, {"attn.v_bias"}}, separate},
      {{{"attn.proj.**"}, {"attn.out_proj.**"}}},
      {{{"attn.**"}, {"attn.**"}}},
      {{{"ls1.gamma"}, {"ls_1.gamma"}}},
      {{{"ls2.gamma"}, {"ls_2.gamma"}}},
      {{{"gamma_1"}, {"ls_1.gamma"}}, gamma},
      {{{"gamma_2"}, {"ls_2.gamma"}}, gamma},
      {{{"mlp.fc1_g.**"}, {"mlp.c_gate.**"}}, separate_halves},
      {{{"mlp.fc1_x.**"}, {"mlp.c_fc.**"}}, separate_halves},
      {{{"mlp.fc1.weight"}, halves("weight")}, packed},
      {{{"mlp.fc1.bias"}, halves("bias")}, packed},
      {{{"mlp.fc1.**"}, {"mlp.c_fc.**"}}, plain},
      {{{"mlp.fc2.**"}, {"mlp.c_proj.**"}}},
      {{{"mlp.w0.**"}, {"mlp.c_gate.**"}}, swiglu},
      {{{"mlp.w1.**"}, {"mlp.c_fc.**"}}, swiglu},
      {{{"mlp.w2.**"}, {"mlp.c_proj.**"}}, swiglu},
      {{{"mlp.norm.**"}, {"mlp.norm_in.**"}}},
      {{{"mlp.norm.**"}, {"mlp.norm.**"}}}};
  const std::vector<Choice> own = {{{{"patch_embed.proj.**"}, {"conv1.**"}}},
                                   {{{"patch_embed.backbone.**"}, {"conv1.**"}}, vit.stem != "patch"},
                                   {{{"cls_token"}, {"class_embedding"}, two_ahead}},
                                   {{{"reg_token"}, {"register_embedding"}, one_ahead}},
                                   {{{"pos_embed"}, {"positional_embedding"}, one_ahead}},
                                   {{{"norm_pre.**"}, {"ln_pre.**"}}},
                                   {{{"norm.**"}, {"ln_post.**"}}},
                                   {{{"fc_norm.**"}, {"ln_post.**"}}, vit.final_norm == "pooled"},
                                   {{{"embeds.proj.weight"}, {"conv1.weight"}, channels_last}, naflex},
                                   {{{"embeds.proj.bias"}, {"conv1.bias"}}, naflex},
                                   {{{"embeds.cls_token"}, {"class_embedding"}, two_ahead}, naflex},
                                   {{{"embeds.reg_token"}, {"register_embedding"}, one_ahead}, naflex},
                                   {{{"embeds.pos_embed"}, {"positional_embedding"}, square_ahead}, naflex},
                                   {{{"head.weight"}, {"proj"}, transposed}},
                                   {{{"head.bias"}, {"proj_bias"}}}};
  const auto chosen_rules = [](const std::vector<Choice>& choices) {
    std::vector<TensorRule> out;
    for (const bool of_class : {true, false})
      for (const Choice& choice : choices)
        if (choice.of_class == of_class) out.push_back(choice.rule);
    return out;
  };
  const std::vector<TensorRule> pool = with_prefixes({{{"latent"}, {"probe"}, two_ahead},
                                                      {{"q.weight", "kv.weight"}, {"attention.in_proj_weight"}, same, {1, 2}},
                                                      {{"q.bias", "kv.bias"}, {"attention.in_proj_bias"}, same, {1, 2}},
                                                      {{"proj.**"}, {"attention.out_proj.**"}},
                                                      {{"norm.**"}, {"layernorm.**"}},
                                                      {{"mlp.fc1.**"}, {"mlp.c_fc.**"}},
                                                      {{"mlp.fc2.**"}, {"mlp.c_proj.**"}}},
                                                     "attn_pool.", "attn_pool.");
  return joined(joined(with_prefixes(chosen_rules(of_blocks), "blocks.*.", "transformer.resblocks.*."), pool), chosen_rules(own));
}

/// The arguments of create_model that one kind of model supports. `renamed` maps arguments to keys of the table's rows.
/// The arguments in `read_apart` are read separately.
struct TimmArguments {
  std::map<std::string, std::string> renamed;
  std::set<std::string> read_apart;
};

const TimmArguments kVitArguments = {
    {{"img_size", "image_size"}, {"patch_size", "patch_size"}, {"depth", "layers"}, {"num_heads", "heads"}, {"class_token", "class_token"},
     {"reg_tokens", "registers"}, {"num_reg_tokens", "registers"}, {"qk_norm", "qk_norm"}, {"pre_norm", "pre_norm"},
     {"use_pre_transformer_norm", "pre_norm"}},
    {"embed_dim", "mlp_ratio", "qkv_bias", "init_values", "no_embed_class", "pos_embed", "use_abs_pos_emb", "fc_norm", "use_fc_norm",
     "final_norm", "act_layer"}};

const TimmArguments kConvnextArguments = {
    {{"depths", "layers"}, {"dims", "widths"}, {"patch_size", "patch_size"}, {"use_grn", "response_norm"}, {"conv_mlp", "conv_mlp"},
     {"conv_bias", "conv_bias"}, {"ls_init_value", "layer_scale_init"}},
    {}};
const TimmArguments kResnetArguments = {{{"layers", "layers"}}, {}};

/// Writes the renamed arguments into `row`. Throws UserError for an unknown argument.
void rename_arguments(nlohmann::json& row, const ForeignConfig& arguments, const TimmArguments& known) {
  static const std::set<std::string> without_effect = {"num_classes", "in_chans", "global_pool", "drop_rate", "drop_path_rate",
                                                       "patch_drop_rate", "pos_drop_rate", "proj_drop_rate", "attn_drop_rate",
                                                       "dynamic_img_size", "dynamic_img_pad", "weight_init", "head_init_scale", "img_size"};
  for (const auto& [key, value] : arguments.json().items()) {
    if (const auto ours = known.renamed.find(key); ours != known.renamed.end())
      row[ours->second] = value;
    else if (!known.read_apart.contains(key) && !without_effect.contains(key))
      arguments.refuse(key, "is an argument of timm's that is not read here");
  }
  arguments.expect<std::int64_t>("in_chans", 3);
}

/// create_model's arguments can change the prefix tokens (class token, registers) and whether prefix tokens have positions. Returns the
/// value of the setting prefix_positions after such changes.
std::string prefix_positions_of(const ForeignConfig& row, const nlohmann::json& changed, const ForeignConfig& arguments) {
  const bool had_prefix = row.get("class_token", true) || row.get<std::int64_t>("registers", 0) > 0;
  const bool bare = had_prefix && row.get<std::string>("prefix_positions", "class_token") == "none";
  if (arguments.get("no_embed_class", bare)) return "none";
  if (changed.value("registers", 0) > 0) return "all";
  return changed.value("class_token", true) ? "class_token" : "none";
}

/// Returns a vision transformer's row of our timm table with the changes that create_model's arguments make.
ForeignConfig with_arguments(const ForeignConfig& row, const ForeignConfig& arguments) {
  nlohmann::json out = row.json();
  rename_arguments(out, arguments, kVitArguments);
  if (is_naflex(row)) {  // its positions are a square of as many patches for every size of images and patches
    const config::Size image = row.size("image_size", {}), patch = row.size("patch_size", {});
    const config::Size own = ForeignConfig(out, row.path()).size("patch_size", patch);
    out["image_size"] = size_json({image.height / patch.height * own.height, image.width / patch.width * own.width});
  }
  const auto width = arguments.get("embed_dim", row.get<std::int64_t>("width", 0)), old_width = row.get<std::int64_t>("width", width);
  out["width"] = width;
  const bool gated = row.get<std::string>("mlp", "plain") != "plain";
  if (gated && arguments.has("mlp_ratio")) arguments.refuse("mlp_ratio", "is read only for plain MLPs");
  const auto hidden = [&](std::int64_t before) {
    if (arguments.has("mlp_ratio")) return static_cast<std::int64_t>(static_cast<double>(width) * arguments.get("mlp_ratio", 4.0));
    return before * width / old_width;
  };
  if (out.contains("mlp_hidden")) out["mlp_hidden"] = hidden(row.get<std::int64_t>("mlp_hidden", 0));
  if (out.contains("map")) {
    out["map"]["mlp_hidden"] = hidden(out["map"].value("mlp_hidden", std::int64_t{0}));
    if (arguments.has("num_heads")) out["map"]["heads"] = arguments.json().at("num_heads");
  }
  if (const bool wanted = arguments.get("qkv_bias", true); !wanted)
    out["qkv_bias"] = "none";
  else if (arguments.has("qkv_bias") && row.get<std::string>("qkv_bias", "all") == "none")
    arguments.refuse("qkv_bias", "is read only to leave the biases out");
  if (arguments.has("init_values"))
    out["layer_scale"] = arguments.get("init_values", 1.0);
  else if (arguments.json().contains("init_values"))
    out.erase("layer_scale");
  for (const char* key : {"class_token", "reg_tokens", "num_reg_tokens", "no_embed_class"})
    if (arguments.has(key)) out["prefix_positions"] = prefix_positions_of(row, out, arguments);
  if (arguments.has("pos_embed") && arguments.get<std::string>("pos_embed", "") != "learn") {
    const auto kind = arguments.get<std::string>("pos_embed", "");
    if (!kind.empty() && kind != "none") arguments.refuse("pos_embed", "is neither learn nor none");
    out["position_embedding"] = "none";
  }
  if (!arguments.get("use_abs_pos_emb", true)) out["position_embedding"] = "none";
  for (const char* key : {"fc_norm", "use_fc_norm"})
    if (arguments.has(key)) out["final_norm"] = arguments.get(key, true) ? "pooled" : "tokens";
  if (!arguments.get("final_norm", true)) out["final_norm"] = "none";
  if (arguments.has("act_layer")) out["activation"] = arguments.activation("act_layer", "gelu");
  return {out, row.path()};
}

/// Returns the settings of a vision transformer's row, which uses Tessera's names.
VitSettings vit_of(const ForeignConfig& row) {
  static const std::set<std::string> of_other_parts = {"pool",      "map",          "map_sees_prefix", "mean",        "std",
                                                       "crop_pct",  "crop_mode",    "interpolation",   "gamma_names", "packed",
                                                       "separate_qkv", "layer_scale", "naflex"};
  nlohmann::json settings = nlohmann::json::object();
  for (const auto& [key, value] : row.json().items())
    if (!value.is_null() && !of_other_parts.contains(key)) settings[key] = value;
  if (row.has("layer_scale")) settings["layer_scale_init"] = row.json().at("layer_scale");
  VitSettings usual;
  usual.image_size = row.size("image_size", usual.image_size);
  usual.patch_size = row.size("patch_size", usual.patch_size);
  usual.partial_patches = has_partial_patches(usual);
  usual.mlp_hidden = 4 * row.get("width", usual.width);
  usual.pre_norm = false;
  usual.patch_bias = true;
  return config::read<VitSettings>(config::from_json(settings, row.path()), "", usual);
}

/// Returns `p`, overwritten with the settings that `c` contains. `c` is a row of our timm table or a configuration that comes with weights.
Preprocessing preprocessing_of(const ForeignConfig& c, Preprocessing p) {
  p.mean = c.get("mean", p.mean);
  p.std = c.get("std", p.std);
  p.interpolation = c.get("interpolation", p.interpolation);
  if (p.interpolation != "bicubic" && p.interpolation != "bilinear")
    c.refuse("interpolation", "our preprocessing cannot resize with: use bicubic or bilinear");
  p.crop_pct = c.get("crop_pct", p.crop_pct);
  if (!(p.crop_pct > 0 && p.crop_pct <= 1)) c.refuse("crop_pct", "is not above 0 and at most 1");
  const auto mode = c.get<std::string>("crop_mode", "center");
  if (mode != "center" && mode != "squash" && mode != "border") c.refuse("crop_mode", "is not center, squash or border");
  if (keeps_shapes(p)) return p;
  p.resize_mode = mode == "squash" ? "squash" : mode == "border" ? "longest" : "shortest";
  if (mode != "border") return p;
  // timm fills the border with the mean color. Tessera fills it with one gray level, the mean of this color's channels.
  constexpr double kLevels = 255;
  p.fill_color = static_cast<std::int64_t>(std::nearbyint(kLevels * (p.mean[0] + p.mean[1] + p.mean[2]) / 3));
  return p;
}

Preprocessing preprocessing_of(const ForeignConfig& row, const config::Size& size) {
  Preprocessing p;
  p.image_size = size;
  return preprocessing_of(row, p);
}

/// Returns the encoder `name` with the settings in a table row, for images of `image_size`. The row already uses Tessera's setting names.
config::ModuleSettings encoder_of(const ForeignConfig& row, const std::string& name, const config::Size& image_size) {
  config::ModuleSettings out{name, config::from_json(row.section("settings").json(), row.path())};
  out.settings.set("image_size", config::Value<config::Size>::dump(image_size));
  return out;
}

/// Returns a vision transformer's read-out. `pool` is timm's name for the pooling, from the head or, if the head has none, from `row`.
config::ModuleSettings readout_of(const ForeignConfig& row, const std::string& pool, const std::string& path) {
  if (pool == "map") {
    const bool prefix = row.get("class_token", true) || row.get<std::int64_t>("registers", 0) > 0;
    if (!row.has("map") && prefix) row.refuse("pool", "has no attention pool, but map was asked for");
    nlohmann::json settings = nlohmann::json::object();
    for (const ForeignConfig& c : {row, row.section("map")})
      for (const char* key : {"heads", "mlp_hidden", "activation", "norm_eps"})
        if (c.has(key)) settings[key] = c.json().at(key);
    return module_with("map", settings);
  }
  if (pool == "token") return {"cls"};
  if (pool == "avg") return {"gap"};
  user_error(path, ": the image tower is pooled by ", pool, ", which our models lack: use token, avg or map");
}

config::ModuleSettings projection_of(const TimmHead& head) {
  if (head.mlp > 0) {
    return module_with("mlp", {{"embed_dim", head.mlp}, {"inner_dim", 2 * head.mlp}, {"norm", "none"}, {"activation", "gelu"},
                               {"hidden_bias", true}, {"bias", head.bias}});
  }
  const std::int64_t width = head.classifier.value_or(head.linear);
  return width > 0 ? linear_to(width, head.classifier.has_value() || head.bias) : config::ModuleSettings{"none"};
}

/// Returns the tower of a ConvNeXt, ResNet or FastViT. Our models use timm's names for the parameters of these encoders.
TimmTower convolutional_tower(const ForeignConfig& given, const ForeignConfig& arguments, const TimmHead& head) {
  nlohmann::json changed = given.json();
  const auto encoder = given.get<std::string>("encoder", "");
  rename_arguments(changed["settings"], arguments, encoder == "convnext" ? kConvnextArguments : kResnetArguments);
  const ForeignConfig row(changed, given.path());
  if (!head.pool.empty() && head.pool != "avg")
    user_error(arguments.path(), ": the image tower is pooled by ", head.pool,
               ", which our models lack for such a tower: use avg");
  TimmTower out;
  const config::Size size = arguments.size("img_size", row.size("image_size", 224));
  out.tower = {encoder_of(row, encoder, size), {"gap"}, projection_of(head)};
  out.preprocessing = preprocessing_of(row, size);
  const std::string classifier = out.tower.encoder.name == "timm_resnet" ? "fc" : "head.fc";
  out.rules = {{{classifier + ".weight"}, {"proj"}, transposed}, {{classifier + ".bias"}, {"proj_bias"}}, {{"**"}, {"**"}}};
  return out;
}

}  // namespace

TimmTower timm_tower(const std::string& name, const ForeignConfig& arguments, const TimmHead& head, const std::string& path) {
  const ForeignConfig published = row_of(name, path);
  if (published.has("encoder")) return convolutional_tower(published, arguments, head);
  const ForeignConfig row = with_arguments(published, arguments);
  VitSettings vit = vit_of(row);
  const auto usual = row.get<std::string>("pool", "token");
  const std::string pool = head.pool.empty() ? usual : head.pool;
  // If the head changes the pooling and OpenCLIP adds no projection of its own, timm moves the last norm to the place that fits the new
  // pooling.
  const bool says_norm = arguments.has("fc_norm") || arguments.has("use_fc_norm");
  if (pool != usual && !says_norm && head.linear == 0 && head.mlp == 0 && vit.final_norm != "none")
    vit.final_norm = pool == "avg" ? "pooled" : "tokens";
  TimmTower out;
  out.tower = {chosen("vit", vit), readout_of(row, pool, path), projection_of(head)};
  out.preprocessing = preprocessing_of(row, vit.image_size);
  if (is_naflex(row)) {  // timm names a square image with as many patches as an image may have
    const config::Size of_timm{24 * vit.patch_size.height, 24 * vit.patch_size.width}, square = arguments.size("img_size", of_timm);
    out.preprocessing.resize_mode = "naflex";
    out.preprocessing.max_patches = square.height / vit.patch_size.height * (square.width / vit.patch_size.width);
  }
  out.rules = vit_rules(row, vit);
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

namespace {

/// Returns create_model's arguments for a transformer whose depth, width or patch size differs from the row's.
nlohmann::json shape_arguments(const VitSettings& vit, const ForeignConfig& row) {
  nlohmann::json out = nlohmann::json::object();
  const auto width = row.get<std::int64_t>("width", vit.width), hidden = row.get<std::int64_t>("mlp_hidden", 4 * width);
  if (vit.layers != row.get<std::int64_t>("layers", 0)) out["depth"] = vit.layers;
  if (vit.width != width) out["embed_dim"] = vit.width;
  if (vit.heads != row.get<std::int64_t>("heads", 0)) out["num_heads"] = vit.heads;
  const config::Size& patch = vit.patch_size;
  if (patch != row.size("patch_size", patch) && patch.height == patch.width) out["patch_size"] = patch.height;
  const bool plain = vit.mlp == "plain" && row.get<std::string>("mlp", "plain") == "plain";
  if (!plain || mlp_width(vit) == hidden * vit.width / width) return out;
  const double own = static_cast<double>(vit.width), exact = static_cast<double>(mlp_width(vit)) / own;
  const bool rounds_down = static_cast<std::int64_t>(own * exact) < mlp_width(vit);
  out["mlp_ratio"] = rounds_down ? (static_cast<double>(mlp_width(vit)) + 0.5) / own : exact;
  return out;
}

}  // namespace

std::vector<TimmName> timm_names(const ModelSettings& model, const TimmHead& head, bool any_shape) {
  std::vector<TimmName> out;
  if (head.pool != "token" && head.pool != "avg" && head.pool != "map") return out;
  const ModelSettings ours = resolve(model);
  const config::Node& encoder = ours.image.encoder.settings;
  for (const auto& [name, json] : timm_table().json().items()) {
    const ForeignConfig row(json, "timm", name + ".");
    const bool is_vit = !row.has("encoder");
    if (row.has("refused") || row.get<std::string>("encoder", "vit") != model.image.encoder.name) continue;
    if (is_naflex(row) != keeps_shapes(model.preprocessing)) continue;
    const config::Size size = config::Value<config::Size>::read(*encoder.find("image_size"), "image_size", {});
    nlohmann::json arguments = nlohmann::json::object();
    if (size != row.size("image_size", size) && !is_naflex(row)) arguments["img_size"] = {size.height, size.width};
    if (is_vit && any_shape) arguments.update(shape_arguments(config::read<VitSettings>(encoder, "model.image.encoder"), row));
    TimmHead wanted = head;
    const auto usual = row.get<std::string>("pool", is_vit ? "token" : "avg");
    if (wanted.pool == usual) wanted.pool.clear();
    if ((wanted.pool == "map" && !row.has("map")) || (!is_vit && !wanted.pool.empty())) continue;
    ModelSettings other;
    other.text.reset();
    TimmTower tower;
    try {
      tower = timm_tower(name, {arguments, "timm"}, wanted, "timm");
      other.image = tower.tower;
      other.preprocessing.image_size = tower.preprocessing.image_size;
      other = resolve(other, name);
    } catch (const UserError&) {
      continue;  // the image size is not a multiple of the patch size
    }
    TimmName found{name, arguments, wanted.pool, differences(ours.image, other.image, "model.image"), 0};
    found.distance = 100 * static_cast<int>(found.unlike.size()) + 10 * static_cast<int>(arguments.size()) + (wanted.pool.empty() ? 0 : 5) +
                     (tower.preprocessing.mean == model.preprocessing.mean ? 0 : 1);
    out.push_back(found);
  }
  std::stable_sort(out.begin(), out.end(), [](const TimmName& a, const TimmName& b) { return a.distance < b.distance; });
  return out;
}

std::string timm_pool_of(const TowerSettings& image) {
  return image.readout.name == "cls" ? "token" : image.readout.name == "gap" ? "avg" : image.readout.name;
}

namespace {

/// Returns the size of the largest square image that has at most as many patches as an image may have.
config::Size square_of_patches(const Preprocessing& p) {
  const auto side = static_cast<std::int64_t>(std::sqrt(static_cast<double>(p.max_patches)));
  return {side * p.patch_size->height, side * p.patch_size->width};
}

}  // namespace

std::vector<PublishedDraft> timm_drafts(const ModelFile& file) {
  using Ordered = nlohmann::ordered_json;
  constexpr std::size_t kMost = 3;  // number of timm names to try, best match first; if these names do not fit, no other name does
  const Ordered carried = carried_json(file, "timm", "config.json");
  const ModelSettings model = resolve(file.model);
  const Preprocessing& p = model.preprocessing;
  std::vector<PublishedDraft> out;
  TimmHead head;
  head.pool = timm_pool_of(model.image);
  std::vector<TimmName> names = timm_names(model, head, /*any_shape=*/true);
  const std::string before = carried.value("architecture", "");
  std::stable_partition(names.begin(), names.end(), [&](const TimmName& each) { return each.unlike.empty() && each.name == before; });
  for (const TimmName& found : names) {
    if (out.size() == kMost) break;
    Ordered arguments = found.arguments;
    if (model.image.encoder.name != "vit") arguments.erase("img_size");  // for other encoders, pretrained_cfg holds the image size
    if (!found.pool.empty()) arguments["global_pool"] = found.pool;
    const char* mode = p.resize_mode == "squash" ? "squash" : p.resize_mode == "longest" ? "border" : "center";
    const bool naflex = keeps_shapes(p);
    const config::Size input = naflex ? square_of_patches(p) : p.image_size;
    const Ordered pretrained = {{"input_size", {3, input.height, input.width}}, {"interpolation", p.interpolation},
                             {"crop_pct", p.crop_pct}, {"crop_mode", mode}, {"mean", p.mean}, {"std", p.std}, {"num_classes", 0},
                             // makes timm build the model for input_size
                             {"fixed_input_size", model.image.encoder.name == "vit" && !naflex}};
    Ordered config = {{"architecture", found.name}, {"num_classes", 0}, {"global_pool", timm_pool_of(model.image)}};
    if (!arguments.empty()) config["model_args"] = arguments;
    config["pretrained_cfg"] = pretrained;
    PublishedDraft draft{concat("timm's ", found.name), {}, {}, false};
    draft.carries_parts = before == found.name;
    if (draft.carries_parts) config = merged(carried, config);
    draft.files["config.json"] = config.dump(2) + "\n";
    out.push_back(draft);
  }
  return out;
}

}  // namespace tessera
