#include <array>
#include <filesystem>

#include <nlohmann/json.hpp>

#include "src/foreign/text_tower.h"
#include "src/foreign/timm.h"
#include "src/models/modified_resnet.h"
#include "src/foreign/open_clip.h"
#include "src/models/text_transformer.h"
#include "src/models/vit.h"

namespace tessera {

/// The transformer settings that open_clip_config.json has for the image tower as well as for the text tower.
struct OpenClipBlocks {
  std::int64_t width = 0;
  double mlp_ratio = 4.0;
  std::optional<double> ls_init_value;
  std::map<std::string, std::string> act_kwargs;
  std::map<std::string, double> norm_kwargs;
  bool final_ln_after_pool = false;
  bool output_tokens = false;
};

template <class Visitor>
void fields(Visitor& v, OpenClipBlocks& s) {
  v("width", s.width, "width of the tokens", config::at_least(1));
  v("mlp_ratio", s.mlp_ratio, "", config::above(0));
  v("ls_init_value", s.ls_init_value, "initial value of LayerScale");
  v("act_kwargs", s.act_kwargs, "approximate: tanh");
  v("norm_kwargs", s.norm_kwargs, "eps");
  v("final_ln_after_pool", s.final_ln_after_pool, "");
  v("output_tokens", s.output_tokens, "has no effect on embeddings");
}

std::optional<config::Problem> validate(const OpenClipBlocks& s) {
  for (const auto& [key, value] : s.act_kwargs)
    if (key != "approximate" || (value != "tanh" && value != "none"))
      return config::Problem{"act_kwargs", concat("only approximate: tanh is known, not ", key, ": ", value)};
  for (const auto& [key, value] : s.norm_kwargs)
    if (key != "eps") return config::Problem{"norm_kwargs", concat("only eps is known, not ", key)};
  return std::nullopt;
}

struct OpenClipVision : OpenClipBlocks {
  OpenClipVision() { width = 768; }
  config::Size image_size = 224;
  config::Size patch_size = 16;
  config::Node layers = config::Node::scalar("12");
  std::int64_t head_width = 64;
  bool no_ln_pre = false;
  std::string pos_embed_type = "learnable";
  std::string pool_type = "tok";
  double patch_dropout = 0;
  std::string timm_model_name, timm_pool = "avg", timm_proj = "linear";
  bool timm_proj_bias = false;
  config::Node attentional_pool = config::Node::scalar("false");
  std::int64_t attn_pooler_queries = 256, attn_pooler_heads = 8;
};

template <class Visitor>
void fields(Visitor& v, OpenClipVision& s) {
  fields(v, static_cast<OpenClipBlocks&>(s));
  v("image_size", s.image_size, "pixels");
  v("patch_size", s.patch_size, "pixels");
  v("layers", s.layers, "number of blocks of a ViT, or of each of a ResNet's four stages");
  v("head_width", s.head_width, "width / heads", config::at_least(1));
  v("no_ln_pre", s.no_ln_pre, "");
  v("pos_embed_type", s.pos_embed_type, "the file has the positions either way", config::one_of({"learnable", "sin_cos_2d"}));
  v("pool_type", s.pool_type, "", config::one_of({"tok", "avg"}));
  v("patch_dropout", s.patch_dropout, "only for training");
  v("timm_model_name", s.timm_model_name, "the name of a timm image tower");
  v("timm_pool", s.timm_pool, "");
  v("timm_proj", s.timm_proj, "", config::one_of({"linear", "none", "", "mlp"}));
  v("timm_proj_bias", s.timm_proj_bias, "");
  v("attentional_pool", s.attentional_pool, "true: CoCa's pooler");
  v("attn_pooler_queries", s.attn_pooler_queries, "", config::at_least(1));
  v("attn_pooler_heads", s.attn_pooler_heads, "", config::at_least(1));
}

struct OpenClipText : OpenClipBlocks {
  OpenClipText() { width = 512; }
  std::int64_t context_length = 77, vocab_size = 49408, heads = 8, layers = 12, pad_id = 0, eos_id = 2;
  std::string pool_type = "argmax", proj_type = "linear";
  std::string hf_model_name, hf_proj_type = "mlp", hf_pooler_type = "mean_pooler";
  bool no_causal_mask = false, proj_bias = false, embed_cls = false, correct_cls_mask = false;
  // of the tower with text_arch: modern
  std::string text_arch = "clip", attention_mode = "causal", pos_embed = "rope", mlp_type = "swiglu", norm_type = "rmsnorm",
              norm_placement = "pre", tokenizer_type;
  double rope_temperature = 10000.0, norm_eps = 1e-6;
  bool qk_norm = false, attn_gated = false, pre_norm = false, attention_bias = false, mlp_bias = false;
  std::optional<bool> gate_bias;

  bool modern() const { return text_arch == "modern"; }
};

template <class Visitor>
void fields(Visitor& v, OpenClipText& s) {
  fields(v, static_cast<OpenClipBlocks&>(s));
  v("context_length", s.context_length, "", config::at_least(1));
  v("vocab_size", s.vocab_size, "", config::at_least(1));
  v("heads", s.heads, "", config::at_least(1));
  v("layers", s.layers, "", config::in_range(1, config::kMostCount));
  v("pad_id", s.pad_id, "has no effect with causal attention");
  v("eos_id", s.eos_id, "for pool_type: eos");
  v("pool_type", s.pool_type, "", config::one_of({"argmax", "eos", "first", "last", "mean", "map"}));
  v("no_causal_mask", s.no_causal_mask, "");
  v("proj_bias", s.proj_bias, "");
  v("embed_cls", s.embed_cls, "");
  v("correct_cls_mask", s.correct_cls_mask, "");
  v("proj_type", s.proj_type, "", config::one_of({"linear", "none"}));
  v("hf_model_name", s.hf_model_name, "the name of a transformers encoder");
  v("hf_proj_type", s.hf_proj_type, "of that encoder", config::one_of({"linear", "mlp", ""}));
  v("hf_pooler_type", s.hf_pooler_type, "of that encoder");
  v("text_arch", s.text_arch, "modern: with RMS norms, gated MLPs and rotary positions", config::one_of({"clip", "modern"}));
  v("attention_mode", s.attention_mode, "of the modern tower, as all keys below", config::one_of({"causal", "bidirectional"}));
  v("pos_embed", s.pos_embed, "", config::one_of({"rope", "none", ""}));
  v("rope_temperature", s.rope_temperature, "", config::above(0));
  v("mlp_type", s.mlp_type, "", config::one_of({"swiglu", "mlp"}));
  v("norm_type", s.norm_type, "", config::one_of({"rmsnorm", "layernorm"}));
  v("norm_eps", s.norm_eps, "", config::above(0));
  v("norm_placement", s.norm_placement, "", config::one_of({"pre", "sandwich"}));
  v("qk_norm", s.qk_norm, "");
  v("attn_gated", s.attn_gated, "");
  v("pre_norm", s.pre_norm, "");
  v("attention_bias", s.attention_bias, "");
  v("mlp_bias", s.mlp_bias, "");
  v("gate_bias", s.gate_bias, "null: as attention_bias");
  v("tokenizer_type", s.tokenizer_type, "");
}

std::optional<config::Problem> validate(const OpenClipText& s) {
  const bool modern_pool = s.pool_type == "mean" || s.pool_type == "map", clip_pool = s.pool_type == "first" || s.pool_type == "last";
  if (s.modern() ? clip_pool : modern_pool)
    return config::Problem{"pool_type", concat(s.pool_type, " is not a pool of text_arch ", s.text_arch)};
  if (s.qk_norm && !s.modern()) return config::Problem{"qk_norm", "is read only with text_arch: modern"};
  return std::nullopt;
}

struct OpenClipModel {
  std::int64_t embed_dim = 0;
  bool quick_gelu = false, custom_text = false, coca = false;
  std::string tokenizer, cleanup;  // hf_tokenizer_name, and how texts are cleaned before tokenizing
  bool strips_separator = false;
  nlohmann::json hf_model_config = nlohmann::json::object();  // values that replace those of the transformers encoder's config.json
  std::optional<double> init_logit_scale, init_logit_bias;
  OpenClipVision vision;
  OpenClipText text;
};

template <class Visitor>
void fields(Visitor& v, OpenClipModel& s) {
  v("embed_dim", s.embed_dim, "", config::at_least(1));
  v("quick_gelu", s.quick_gelu, "");
  v("custom_text", s.custom_text, "whether the file names the text tower's tensors with the prefix text.");
  v("init_logit_scale", s.init_logit_scale, "only for training");
  v("init_logit_bias", s.init_logit_bias, "only for training");
  v("vision_cfg", s.vision, "");
  v("text_cfg", s.text, "");
}

struct OpenClipPreprocessing {
  std::optional<config::Size> size;
  std::string mode = "RGB";
  Preprocessing ours;
};

template <class Visitor>
void fields(Visitor& v, OpenClipPreprocessing& s) {
  v("size", s.size, "pixels; if missing, the image tower's size");
  v("mode", s.mode, "", config::one_of({"RGB"}));
  v("mean", s.ours.mean, "");
  v("std", s.ours.std, "", config::above(0));
  v("interpolation", s.ours.interpolation, "", config::one_of({"bicubic", "bilinear"}));
  v("resize_mode", s.ours.resize_mode, "", config::one_of({"shortest", "longest", "squash"}));
  v("fill_color", s.ours.fill_color, "", config::in_range(0, 255));
}

struct OpenClipFile {
  OpenClipModel model;
  OpenClipPreprocessing preprocessing;
};

template <class Visitor>
void fields(Visitor& v, OpenClipFile& s) {
  v("model_cfg", s.model, "");
  v("preprocess_cfg", s.preprocessing, "");
}

namespace {

using OpenClipJson = nlohmann::ordered_json;

bool switched_off(const OpenClipJson& value) {
  return value.is_null() || value == false || value == "" || (value.is_structured() && value.empty());
}

/// Throws UserError if one of `keys` turns on a part that OpenCLIP can build and we cannot. Otherwise removes these
/// keys from the JSON.
void refuse_foreign_parts(OpenClipJson& section, const std::string& name, const std::vector<std::string>& keys,
                          const std::string& path) {
  for (const std::string& key : keys) {
    if (!section.is_object() || !section.contains(key)) continue;
    if (!switched_off(section.at(key)))
      user_error(path, ": ", name, ".", key, " is ", section.at(key).dump(),
                 ": our models have no counterpart of it (docs/pretrained.md lists what is read)");
    section.erase(key);
  }
}

void drop_nulls(OpenClipJson& json) {
  if (!json.is_object()) return;
  for (auto item = json.begin(); item != json.end();) {
    drop_nulls(item.value());
    item = item.value().is_null() ? json.erase(item) : std::next(item);
  }
}

OpenClipFile parse_open_clip_config(const std::string& text, const std::string& path) {
  OpenClipJson json = OpenClipJson::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("model_cfg") || !json.at("model_cfg").is_object())
    user_error(path, ": not OpenCLIP's configuration: expected a JSON object with model_cfg");
  OpenClipJson& model = json.at("model_cfg");
  for (const char* of_no_meaning : {"cast_dtype", "output_dict", "nonscalar_logit_scale"}) model.erase(of_no_meaning);
  OpenClipJson &vision = model["vision_cfg"], &text_tower = model["text_cfg"];
  for (const char* of_training : {"timm_model_pretrained", "timm_drop", "timm_drop_path"}) vision.erase(of_training);
  for (const char* of_training : {"hf_model_pretrained", "variable_text", "bos_id", "tiktoken_name", "zero_init_residual"})
    text_tower.erase(of_training);
  const auto none_for_null = [](OpenClipJson& section, const char* key) {  // in these files, a null means `none`, not the default
    if (section.contains(key) && section.at(key).is_null()) section[key] = "";
  };
  for (const char* key : {"timm_pool", "timm_proj"}) none_for_null(vision, key);
  for (const char* key : {"hf_proj_type", "hf_pooler_type"}) none_for_null(text_tower, key);
  refuse_foreign_parts(vision, "model_cfg.vision_cfg",
                       {"block_type", "qk_norm", "scaled_cosine_attn", "scale_heads",
                        "scale_attn_inner", "scale_attn", "scale_fc"},
                       path);
  refuse_foreign_parts(text_tower, "model_cfg.text_cfg",
                       {"use_pad_mask", "block_type", "scaled_cosine_attn", "scale_heads", "scale_attn_inner", "scale_attn", "scale_fc",
                        "reg_tokens", "value_residual"},
                       path);
  const OpenClipJson named = text_tower.is_object() ? text_tower.value("hf_tokenizer_name", OpenClipJson()) : OpenClipJson();
  const std::string tokenizer = named.is_string() ? named.get<std::string>() : "";
  const OpenClipJson arguments = text_tower.is_object() ? text_tower.value("tokenizer_kwargs", OpenClipJson()) : OpenClipJson();
  std::string cleanup = "whitespace";
  bool strips_separator = false;
  if (arguments.is_object()) {
    cleanup = arguments.value("clean", cleanup);
    strips_separator = arguments.value("strip_sep_token", false);
  }
  for (const char* of_tokenizers : {"hf_tokenizer_name", "tokenizer_mode", "tokenizer_kwargs"}) text_tower.erase(of_tokenizers);
  const nlohmann::json changes =
      text_tower.is_object() ? nlohmann::json(text_tower.value("hf_model_config", OpenClipJson())) : nlohmann::json();
  text_tower.erase("hf_model_config");
  const bool coca = model.contains("multimodal_cfg");
  model.erase("multimodal_cfg");
  drop_nulls(json);
  OpenClipFile file = config::read<OpenClipFile>(config::from_json(nlohmann::json(json), path));
  file.model.coca = coca;
  if (changes.is_object()) file.model.hf_model_config = changes;
  file.model.tokenizer = tokenizer;
  file.model.cleanup = cleanup;
  file.model.strips_separator = strips_separator;
  return file;
}

void set_blocks(TransformerSettings& ours, const OpenClipBlocks& theirs, bool quick_gelu) {
  ours.width = theirs.width;
  ours.mlp_ratio = theirs.mlp_ratio;
  ours.layer_scale_init = theirs.ls_init_value;
  if (theirs.final_ln_after_pool) ours.final_norm = "pooled";
  if (const auto eps = theirs.norm_kwargs.find("eps"); eps != theirs.norm_kwargs.end()) ours.norm_eps = eps->second;
  const auto approximate = theirs.act_kwargs.find("approximate");
  const bool tanh = approximate != theirs.act_kwargs.end() && approximate->second == "tanh";
  ours.activation = quick_gelu ? "quick_gelu" : tanh ? "gelu_tanh" : "gelu";
}

TowerSettings resnet_tower(const OpenClipModel& model) {
  const OpenClipVision& theirs = model.vision;
  ModifiedResnetSettings resnet;
  resnet.layers = config::Value<std::array<std::int64_t, 4>>::read(theirs.layers, "model_cfg.vision_cfg.layers", {});
  resnet.width = theirs.width;
  resnet.image_size = theirs.image_size;
  const std::int64_t heads = theirs.width * ModifiedResnet::kWidening / theirs.head_width;
  const auto pool = module_with("attention_pool_2d", {{"heads", heads}, {"output_dim", model.embed_dim}});
  return {chosen("modified_resnet", resnet), pool, {"none"}};
}

TowerSettings image_tower_of(const OpenClipModel& model, const std::string& path) {
  const OpenClipVision& theirs = model.vision;
  if (theirs.layers.is_sequence()) return resnet_tower(model);
  VitSettings vit;
  set_blocks(vit, theirs, model.quick_gelu);
  vit.layers = config::Value<std::int64_t>::read(theirs.layers, "model_cfg.vision_cfg.layers", 0);
  vit.heads = theirs.width / theirs.head_width;
  vit.image_size = theirs.image_size;
  vit.patch_size = theirs.patch_size;
  vit.pre_norm = !theirs.no_ln_pre;
  if (theirs.attentional_pool.text() != "false") {
    if (theirs.attentional_pool.text() != "true")
      user_error(path, ": model_cfg.vision_cfg.attentional_pool is ", theirs.attentional_pool.text(),
                 ": our models have only the pooler for `true`");
    if (theirs.pool_type != "tok")
      user_error(path, ": model_cfg.vision_cfg.pool_type is ", theirs.pool_type, ": our attentional pool has only tok, its first query");
    vit.final_norm = "none";
    const auto pool = module_with("attentional_pool", {{"output_dim", model.embed_dim}, {"heads", theirs.attn_pooler_heads},
                                                       {"queries", theirs.attn_pooler_queries}});
    return {chosen("vit", vit), pool, {"none"}};
  }
  return {chosen("vit", vit), {theirs.pool_type == "avg" ? "gap" : "cls"}, linear_to(model.embed_dim)};
}

/// Returns the tower for OpenCLIP's TimmModel. It is timm's tower (tensor names `visual.trunk.*`), followed by OpenCLIP's own projection,
/// by timm's classifier as the projection, or by no projection.
TimmTower timm_tower_of(const OpenClipModel& model, const std::string& path) {
  const OpenClipVision& theirs = model.vision;
  TimmHead head;
  head.pool = theirs.timm_pool;
  if (theirs.timm_proj.empty()) head.classifier = model.embed_dim;
  if (theirs.timm_proj == "linear") head.linear = model.embed_dim;
  if (theirs.timm_proj == "mlp") head.mlp = model.embed_dim;
  head.bias = theirs.timm_proj_bias && (head.linear > 0 || head.mlp > 0);
  const nlohmann::json arguments = {{"img_size", {theirs.image_size.height, theirs.image_size.width}}};
  TimmTower out = timm_tower(theirs.timm_model_name, {arguments, path}, head, path);
  if (keeps_shapes(out.preprocessing))
    user_error(path, ": timm's NaFlex models are read only from timm's folders, not as a tower of OpenCLIP: ", theirs.timm_model_name);
  out.rules = with_prefixes(out.rules, "visual.trunk.", "visual.");
  const std::vector<TensorRule> projections = {{{"proj.weight"}, {"proj"}, TensorChange::transposed},
                                               {{"proj.bias"}, {"proj_bias"}},
                                               {{"mlp.fc1.**"}, {"head.linear_hidden.0.**"}},
                                               {{"mlp.fc2.**"}, {"head.linear_out.**"}}};
  // Writing uses the first rule that matches. So the projection's rules come before the trunk's, unless the projection
  // is timm's classifier.
  const std::vector<TensorRule> own = with_prefixes(projections, "visual.head.", "visual.");
  out.rules.insert(head.classifier ? out.rules.end() : out.rules.begin(), own.begin(), own.end());
  return out;
}

/// Returns the tower for OpenCLIP's HFTextEncoder. That class wraps a transformers encoder (tensor names `text.transformer.*`).
TextTower transformers_text_of(const OpenClipModel& model, const std::string& path) {
  const OpenClipText& theirs = model.text;
  const std::string folder = std::filesystem::absolute(path).parent_path().string();
  const ForeignConfig encoder = text_tower_config(theirs.hf_model_name, folder, path);
  nlohmann::json settings = encoder.json();
  settings.update(model.hf_model_config);
  return text_tower({settings, encoder.path()},
                    {theirs.hf_pooler_type, theirs.hf_proj_type, model.embed_dim, theirs.context_length});
}

/// Returns the tower for OpenCLIP's ModernTextTransformer.
TowerSettings modern_text_of(const OpenClipModel& model) {
  const OpenClipText& theirs = model.text;
  TextTransformerSettings text;
  set_blocks(text, theirs, /*quick_gelu=*/false);
  text.layers = theirs.layers;
  text.heads = theirs.heads;
  text.context_length = theirs.context_length;
  text.vocab_size = theirs.vocab_size;
  text.attention = theirs.attention_mode;
  text.position_embedding = theirs.pos_embed == "rope" ? "rotary" : "none";
  text.rotary_base = theirs.rope_temperature;
  text.norm = theirs.norm_type == "rmsnorm" ? "rms" : "layer";
  text.norm_eps = theirs.norm_eps;
  text.block_norm = theirs.norm_placement == "sandwich" ? "both" : "before";
  text.pre_norm = theirs.pre_norm;
  text.qk_norm = theirs.qk_norm;
  text.qkv_bias = theirs.attention_bias ? "all" : "none";
  text.out_bias = theirs.attention_bias;
  if (theirs.attn_gated) text.attention_gate = theirs.gate_bias.value_or(theirs.attention_bias) ? "biased" : "plain";
  text.mlp_bias = theirs.mlp_bias;
  if (theirs.mlp_type == "swiglu") {
    text.mlp = "gated";
    text.activation = "silu";
  }
  // An end token that a text lacks is where the mask ends, too.
  config::ModuleSettings readout = module_with("eos", {{"position", "mask"}});
  if (theirs.pool_type == "mean") readout = {"gap"};
  if (theirs.pool_type == "map")
    readout = module_with("map", {{"heads", theirs.heads}, {"attention_only", true}, {"bias", theirs.attention_bias},
                                  {"qk_norm", theirs.qk_norm ? text.norm : "none"}, {"norm_eps", theirs.norm_eps}});
  return {chosen("text_transformer", text), readout,
          theirs.proj_type == "none" ? config::ModuleSettings{"none"} : linear_to(model.embed_dim, theirs.proj_bias)};
}

/// Returns the rules for ModernTextTransformer, whose names here have no prefix.
std::vector<TensorRule> modern_text_rules(bool gated) {
  using enum TensorChange;
  std::vector<TensorRule> block = {{{"norm1.**"}, {"ln_1.**"}},
                                         {{"norm1_post.**"}, {"ln_1_post.**"}},
                                         {{"norm2.**"}, {"ln_2.**"}},
                                         {{"norm2_post.**"}, {"ln_2_post.**"}},
                                         {{"ls1.**"}, {"ls_1.**"}},
                                         {{"ls2.**"}, {"ls_2.**"}},
                                         {{"attn.qkv.weight"}, {"attn.in_proj_weight"}},
                                         {{"attn.qkv.bias"}, {"attn.in_proj_bias"}},
                                         {{"attn.proj.**"}, {"attn.out_proj.**"}},
                                         {{"attn.**"}, {"attn.**"}}};
  const std::vector<TensorRule> mlp = {{{"mlp.w12.weight"}, {"mlp.c_fc.weight", "mlp.c_gate.weight"}},
                                       {{"mlp.w12.bias"}, {"mlp.c_fc.bias", "mlp.c_gate.bias"}},
                                       {{"mlp.w3.**"}, {"mlp.c_proj.**"}}};
  block = joined(block, gated ? mlp : std::vector<TensorRule>{{{"mlp.**"}, {"mlp.**"}}});
  const std::vector<TensorRule> own = {{{"token_embedding.weight"}, {"token_embedding.weight"}},
                                       {{"norm_pre.**"}, {"ln_pre.**"}},
                                       {{"ln_final.**"}, {"ln_final.**"}},
                                       {{"pool.query"}, {"attn_pool.probe"}, two_ahead},
                                       {{"pool.q.weight", "pool.kv.weight"}, {"attn_pool.attention.in_proj_weight"}, same, {1, 2}},
                                       {{"pool.q.bias", "pool.kv.bias"}, {"attn_pool.attention.in_proj_bias"}, same, {1, 2}},
                                       {{"pool.**"}, {"attn_pool.attention.**"}},
                                       {{"text_projection.weight"}, {"text_projection"}, transposed},
                                       {{"text_projection.bias"}, {"text_projection_bias"}}};
  return joined(with_prefixes(block, "blocks.*.", "transformer.resblocks.*."), own);
}

TowerSettings text_tower_of(const OpenClipModel& model) {
  const OpenClipText& theirs = model.text;
  if (theirs.modern()) return modern_text_of(model);
  TextTransformerSettings text;
  set_blocks(text, theirs, model.quick_gelu);
  text.layers = theirs.layers;
  text.heads = theirs.heads;
  text.context_length = theirs.context_length;
  text.vocab_size = theirs.vocab_size;
  if (theirs.no_causal_mask) text.attention = "bidirectional";
  if (theirs.embed_cls) text.class_token = theirs.correct_cls_mask ? "appended" : "shifted";
  nlohmann::json eos = {{"position", theirs.pool_type == "last" ? "mask" : "ids"}};
  if (theirs.pool_type == "eos") eos["eos_id"] = theirs.eos_id;
  const bool none = theirs.proj_type == "none", first = theirs.embed_cls || theirs.pool_type == "first";
  return {chosen("text_transformer", text), first ? config::ModuleSettings{"cls"} : module_with("eos", eos),
          none ? config::ModuleSettings{"none"} : linear_to(model.embed_dim, theirs.proj_bias)};
}

/// Returns the rules for all tensors except those of towers from other libraries. The tensors have our names, except that some files put
/// the prefix `text.` before the names of the text tower. Reading accepts names with and without the prefix. Writing uses the first rule
/// that matches, so the rules with the names that this model's own files use come first.
std::vector<TensorRule> name_rules(const OpenClipModel& model) {
  const bool custom = model.custom_text || !model.text.hf_model_name.empty() || model.coca || model.text.modern();
  const std::vector<TensorRule> module = {{{"text.text_projection.weight"}, {"text_projection"}, TensorChange::transposed},
                                          {{"text.text_projection.bias"}, {"text_projection_bias"}}};
  const TensorRule named{{"text.**"}, {"**"}}, plain{{"**"}, {"**"}};
  std::vector<TensorRule> out;
  for (const char* shared : {"visual.**", "logit_scale", "logit_bias"}) out.push_back({{shared}, {shared}});
  if (model.text.proj_bias) out.insert(out.end(), module.begin(), module.end());
  out.push_back(custom ? named : plain);
  out.insert(out.end(), module.begin(), module.end());
  out.push_back(custom ? plain : named);
  return out;
}

}  // namespace

ForeignModel open_clip_model(const std::string& text, const std::string& path) {
  const OpenClipFile file = parse_open_clip_config(text, path);
  if (file.model.embed_dim == 0) user_error(path, ": model_cfg.embed_dim is missing");
  const OpenClipVision& vision = file.model.vision;
  ForeignModel out;
  out.library = "OpenCLIP";
  if (file.model.text.hf_model_name.empty()) {
    out.model.text = text_tower_of(file.model);
    if (file.model.text.modern()) out.rules = with_prefixes(modern_text_rules(file.model.text.mlp_type == "swiglu"), "text.", "");
  } else {
    const TextTower tower = transformers_text_of(file.model, path);
    out.model.text = tower.tower;
    out.rules = with_prefixes(tower.rules, "text.", "");
  }
  if (vision.timm_model_name.empty()) {
    out.model.image = image_tower_of(file.model, path);
  } else {
    const TimmTower timm = timm_tower_of(file.model, path);
    out.model.image = timm.tower;
    out.rules.insert(out.rules.end(), timm.rules.begin(), timm.rules.end());
  }
  for (const TensorRule& rule : name_rules(file.model)) out.rules.push_back(rule);
  out.left_out = {{"text_decoder.**", "the text decoder"},
                  {"text.transformer.embeddings.position_ids", ""},
                  {"text.transformer.embeddings.token_type_ids", ""}};
  out.padding_is_text = file.model.text.no_causal_mask;
  out.model.preprocessing = file.preprocessing.ours;
  out.model.preprocessing.image_size = file.preprocessing.size.value_or(vision.image_size);
  out.model.unit_length = file.model.coca;
  out.tokenizer_in_folder = !file.model.tokenizer.empty() || !file.model.text.tokenizer_type.empty();
  out.cleanup = file.model.cleanup;
  out.separator_is_padding = file.model.strips_separator;
  out.model = resolve(out.model, path);
  return out;
}

}  // namespace tessera
