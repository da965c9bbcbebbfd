#include <nlohmann/json.hpp>

#include "src/foreign/draft.h"
#include "src/foreign/same_model.h"
#include "src/foreign/timm.h"
#include "src/models/modified_resnet.h"
#include "src/foreign/open_clip.h"
#include "src/models/text_transformer.h"
#include "src/models/vit.h"
#include <tessera/base/error.h>

namespace tessera {
namespace {

using OpenClipJson = nlohmann::ordered_json;

class OpenClipConfigWriter {
 public:
  OpenClipConfigWriter(const ModelFile& file, const std::string& path)
      : file_(file), model_(resolve(file.model)), path_(path) {}

  /// Returns the configuration with OpenCLIP's own image tower.
  OpenClipJson whole() const {
    if (!model_.text) refuse("a model without a text tower");
    require(!model_.unit_length, "embeddings of unit length");
    return with_own_vision({});
  }

  OpenClipJson with_own_vision(const OpenClipJson& text_cfg) const {
    return with_vision(image().encoder.name == "modified_resnet" ? modified_resnet() : vit(), text_cfg);
  }

  /// Returns the configuration with these values of `vision_cfg` and `text_cfg`. If `text_cfg` is an empty object,
  /// OpenCLIP's own text tower is used.
  OpenClipJson with_vision(const OpenClipJson& vision, const OpenClipJson& text_cfg) const {
    if (!model_.text) refuse("a model without a text tower");
    return {{"model_cfg", model(vision, text_cfg)}, {"preprocess_cfg", preprocessing()}};
  }

  /// Returns the `vision_cfg`s whose timm models have the architecture of this model's image tower.
  std::vector<OpenClipJson> timm_visions() const {
    TimmHead head;
    head.pool = timm_pool_of(image());
    const std::int64_t width = is_map(image().projection) ? embed_dim_of(image().projection) : embed_dim();
    std::vector<OpenClipJson> out;
    for (const char* projection : {"none", "linear", "mlp", ""}) {
      head.linear = projection == std::string_view("linear") ? width : 0;
      head.mlp = projection == std::string_view("mlp") ? width : 0;
      head.classifier.reset();
      if (*projection == '\0') head.classifier = width;
      head.bias = has_bias(image().projection) && (head.linear > 0 || head.mlp > 0);
      const std::vector<TimmName> names = timm_names(model_, head, /*any_shape=*/false);
      if (names.empty() || !names.front().unlike.empty()) continue;
      OpenClipJson vision = {{"image_size", size_json(model_.preprocessing.image_size)}, {"timm_model_name", names.front().name},
                             {"timm_model_pretrained", false}, {"timm_pool", head.pool}};
      vision["timm_proj"] = *projection == '\0' ? OpenClipJson(nullptr) : OpenClipJson(projection);
      if (head.bias) vision["timm_proj_bias"] = true;
      out.push_back(vision);
    }
    return out;
  }

 private:
  template <class... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    user_error(path_, ": OpenCLIP has no counterpart of ", parts...,
               ": read this model with python/tessera/plain_model.py, in plain PyTorch");
  }
  void require(bool known, const char* what) const {
    if (!known) refuse(what);
  }

  template <class Settings>
  Settings read(const config::ModuleSettings& part) const {
    return config::read<Settings>(part.settings, path_);
  }

  const TowerSettings& image() const { return model_.image; }
  const TowerSettings& text() const { return *model_.text; }

  /// Returns all settings of a part of the model.
  static nlohmann::json settings_of(const config::ModuleSettings& part) { return config::to_json(part.settings); }

  static bool is_map(const config::ModuleSettings& projection) { return projection.name == "mlp" || projection.name == "linear"; }

  static bool has_bias(const config::ModuleSettings& projection) {
    return is_map(projection) && settings_of(projection).at("bias").get<bool>();
  }

  static std::int64_t embed_dim_of(const config::ModuleSettings& projection) {
    return settings_of(projection).at("embed_dim").get<std::int64_t>();
  }

  OpenClipJson model(const OpenClipJson& vision, const OpenClipJson& text_cfg) const {
    const OpenClipJson texts = text_cfg.empty() ? text_transformer() : text_cfg;
    OpenClipJson out;
    out["embed_dim"] = embed_dim();
    out["quick_gelu"] = quick_gelu();
    // OpenCLIP's class CLIP supports neither a projection with a bias nor a text tower of another library.
    for (const char* key : {"proj_bias", "no_causal_mask", "hf_model_name", "embed_cls", "text_arch"})
      if (texts.contains(key)) out["custom_text"] = true;
    if (const auto bias = file_.weights.find("logit_bias"); bias != file_.weights.end())
      out["init_logit_bias"] = bias->second.item<double>();
    out["vision_cfg"] = vision;
    out["text_cfg"] = texts;
    return out;
  }

  std::int64_t embed_dim() const {
    return is_map(text().projection) ? embed_dim_of(text().projection) : read<TextTransformerSettings>(text().encoder).width;
  }

  // OpenCLIP has one setting for both towers. We take the text tower's value, because the image tower may be a ResNet,
  // which always uses ReLU.
  bool quick_gelu() const {
    if (text().encoder.name != "text_transformer") refuse("the text encoder ", text().encoder.name);
    return read<TextTransformerSettings>(text().encoder).activation == "quick_gelu";
  }

  OpenClipJson vit() const {
    if (image().encoder.name != "vit") refuse("the image encoder ", image().encoder.name);
    const auto settings = read<VitSettings>(image().encoder);
    require((settings.activation == "quick_gelu") == quick_gelu(), "quick_gelu in only one tower");
    require(!has_bias(image().projection), "an image projection with a bias");
    require(settings.class_token, "an image tower without a class token");
    require(settings.position_embedding == "learned", "an image tower without positions");
    require(settings.stem == "patch" && !settings.patch_bias, "a stem other than one convolution without bias");
    require(settings.registers == 0 && settings.prefix_positions != "none", "registers, or a class token without a position");
    require(!settings.rotary, "rotary positions");
    const bool attentional = image().readout.name == "attentional_pool";
    require(settings.final_norm != "none" || attentional, "an image tower without a final norm");
    OpenClipJson out = {{"image_size", size_json(settings.image_size)}, {"patch_size", size_json(settings.patch_size)}};
    out.update(transformer(settings));
    out["head_width"] = settings.width / settings.heads;
    if (!settings.pre_norm) out["no_ln_pre"] = true;
    if (settings.final_norm == "pooled") out["final_ln_after_pool"] = true;
    if (image().readout.name == "gap") {
      require(settings_of(image().readout).at("skip_prefix") <= 1, "a mean that skips patches");
      out["pool_type"] = "avg";
    } else if (attentional) {
      const OpenClipJson pool = settings_of(image().readout);
      require(pool.at("pool") == "first" && pool.at("project") == true, "an attentional pool that does not project its first query");
      out["attentional_pool"] = true;
      out["attn_pooler_queries"] = pool.at("queries");
      out["attn_pooler_heads"] = pool.at("heads");
      require(image().projection.name == "none", "a projection after an attentional pool");
      return out;
    } else if (image().readout.name != "cls") {
      refuse("the image read-out ", image().readout.name);
    }
    if (image().projection.name != "linear") refuse("the projection ", image().projection.name, " after a ViT");
    return out;
  }

  OpenClipJson modified_resnet() const {
    const auto settings = read<ModifiedResnetSettings>(image().encoder);
    if (image().readout.name != "attention_pool_2d") refuse("the image read-out ", image().readout.name, " of a ResNet");
    require(image().projection.name == "none", "a projection after a ResNet's attention_pool_2d");
    require(settings.image_size.height == settings.image_size.width, "a ResNet for images that are not square");
    const auto heads = settings_of(image().readout).at("heads").get<std::int64_t>();
    return {{"image_size", size_json(settings.image_size)},
            {"layers", settings.layers},
            {"width", settings.width},
            {"patch_size", nullptr},
            {"head_width", settings.width * ModifiedResnet::kWidening / heads}};
  }

  /// Returns the `text_cfg` of OpenCLIP's modern text tower.
  OpenClipJson modern_text(const TextTransformerSettings& s) const {
    const bool clip_tokens = file_.tokenizer.name.empty() || file_.tokenizer.name == "clip-bpe", gated = s.mlp == "gated";
    require(s.position_embedding == "rotary" || s.position_embedding == "none", "these positions of texts");
    require(s.rotary_pairs == "neighbors" && !s.local, "rotary pairs of halves, or local attention, in texts");
    require(gated ? s.activation == "silu" : s.activation == "gelu", "this activation");
    // OpenCLIP's tower takes every token with the padding's id for padding. In CLIP's texts, this is also the id of an exclamation mark.
    require(s.attention == "causal" || !clip_tokens, "bidirectional attention to CLIP's tokens in its modern tower");
    OpenClipJson out = {{"text_arch", "modern"}, {"context_length", s.context_length}, {"vocab_size", s.vocab_size}};
    out.update(OpenClipJson{{"width", s.width}, {"heads", s.heads}, {"layers", s.layers}});
    out["mlp_ratio"] = s.mlp_hidden ? (static_cast<double>(*s.mlp_hidden) + 0.5) / static_cast<double>(s.width) : s.mlp_ratio;
    if (s.layer_scale_init) out["ls_init_value"] = *s.layer_scale_init;
    out["attention_mode"] = s.attention;
    out["pos_embed"] = s.position_embedding == "rotary" ? "rope" : "none";
    out["rope_temperature"] = s.rotary_base;
    out["mlp_type"] = gated ? "swiglu" : "mlp";
    out["norm_type"] = s.norm == "rms" ? "rmsnorm" : "layernorm";
    out["norm_eps"] = s.norm_eps;
    out["norm_placement"] = s.block_norm == "both" ? "sandwich" : "pre";
    out["qk_norm"] = s.qk_norm;
    out["pre_norm"] = s.pre_norm;
    out["attention_bias"] = s.out_bias;
    out["attn_gated"] = s.attention_gate != "none";
    if (s.attention_gate != "none") out["gate_bias"] = s.attention_gate == "biased";
    out["mlp_bias"] = s.mlp_bias;
    out["pad_id"] = 0;
    constexpr std::int64_t kEndOfClip = 49407;
    const std::string& pool = text().readout.name;
    if (pool == "eos") {
      require(clip_tokens, "the end token of this tokenizer in its modern tower");
      out["eos_id"] = kEndOfClip;
    }
    out["pool_type"] = pool == "gap" ? "mean" : pool;
    if (has_bias(text().projection)) out["proj_bias"] = true;
    if (text().projection.name == "none") out["proj_type"] = "none";
    return out;
  }

  OpenClipJson text_transformer() const {
    const auto settings = read<TextTransformerSettings>(text().encoder);
    if (settings.norm != "layer" || settings.mlp == "gated" || settings.position_embedding == "rotary") return modern_text(settings);
    const config::Node* sees_padding = file_.tokenizer.settings.find("pad_is_text");
    const bool bidirectional = settings.attention == "bidirectional";
    require(!bidirectional || (sees_padding != nullptr && sees_padding->text() == "true"),
            "bidirectional attention that leaves out a text's padding");
    require(settings.final_norm != "none", "a text tower without a final norm");
    const bool class_token = settings.class_token != "none";
    require(!class_token || text().readout.name == "cls", "a class token after texts that is not read out");
    require(settings.position_embedding == "learned" && !settings.position_rows && settings.position_offset == 0 && settings.token_types == 0 &&
                settings.embedding_scale == 1 && !settings.pre_norm,
            "text embeddings that differ from CLIP's");
    OpenClipJson out = {{"context_length", settings.context_length}, {"vocab_size", settings.vocab_size}};
    out.update(transformer(settings));
    out["heads"] = settings.heads;
    if (bidirectional) out["no_causal_mask"] = true;
    if (!file_.tokenizer.name.empty() && file_.tokenizer.name != "clip-bpe") out["hf_tokenizer_name"] = "in-this-folder";
    if (const config::Node* cleanup = file_.tokenizer.settings.find("cleanup"); cleanup != nullptr && out.contains("hf_tokenizer_name"))
      if (const std::string& kind = cleanup->text(); kind == "lower" || kind == "canonicalize" || kind == "siglip")
        out["tokenizer_kwargs"] = {{"clean", kind == "lower" ? "lower" : "canonicalize"}};
    if (has_bias(text().projection)) out["proj_bias"] = true;
    if (class_token) {
      out["embed_cls"] = true;
      if (settings.class_token == "appended") out["correct_cls_mask"] = true;
    }
    if (text().readout.name != "eos" && !class_token) refuse("the text read-out ", text().readout.name);
    if (text().projection.name == "none")
      out["proj_type"] = "none";
    else if (text().projection.name != "linear")
      refuse("the text tower's projection ", text().projection.name);
    if (class_token) return out;
    const OpenClipJson readout = settings_of(text().readout);
    const bool at_mask = readout.at("position") == "mask", at_id = !readout.at("eos_id").is_null();
    if (bidirectional && at_mask && !at_id) {
      out["pool_type"] = "last";
    } else if (at_id) {
      out["pool_type"] = "eos";
      out["eos_id"] = readout.at("eos_id");
    } else {
      // OpenCLIP searches for the largest id. With CLIP's own tokenizer this is the id of the last real token.
      const bool last_is_largest = file_.tokenizer.name.empty() || file_.tokenizer.name == "clip-bpe";
      if (at_mask && !last_is_largest)
        refuse("the text read-out eos at the last token of the tokenizer ", file_.tokenizer.name);
    }
    return out;
  }

  OpenClipJson transformer(const TransformerSettings& settings) const {
    const TransformerSettings defaults;
    require(settings.mlp == "plain" && !settings.mlp_norm && !settings.mlp_input_norm, "a gated or normalized MLP");
    require(settings.block_norm == "before" && settings.norm == "layer" && settings.first_norm, "norms other than LayerNorm before attention and MLP");
    require(!settings.head_width && !settings.key_heads && !settings.score_scale && settings.attention_gate == "none",
            "attention with a gate, or with another width, number or scale of heads");
    require(settings.qkv_bias == "all" && settings.out_bias && settings.mlp_bias && !settings.qk_norm && !settings.attention_norm, "attention without biases or with norms");
    require(settings.activation != "silu" && settings.activation != "relu", "this activation");
    OpenClipJson out = {{"layers", settings.layers}, {"width", settings.width}};
    const double ratio = settings.mlp_hidden ? static_cast<double>(*settings.mlp_hidden) / static_cast<double>(settings.width)
                                             : settings.mlp_ratio;
    if (ratio != defaults.mlp_ratio) out["mlp_ratio"] = ratio;
    if (settings.layer_scale_init) out["ls_init_value"] = *settings.layer_scale_init;
    if (settings.activation == "gelu_tanh") out["act_kwargs"] = {{"approximate", "tanh"}};
    if (settings.norm_eps != defaults.norm_eps) out["norm_kwargs"] = {{"eps", settings.norm_eps}};
    return out;
  }

  OpenClipJson preprocessing() const {
    const Preprocessing& settings = model_.preprocessing;
    require(settings.crop_pct == 1, "preprocessing.crop_pct");
    require(!keeps_shapes(settings), "preprocessing.resize_mode");
    return {{"size", size_json(settings.image_size)}, {"mode", "RGB"},
            {"mean", settings.mean},              {"std", settings.std},
            {"interpolation", settings.interpolation}, {"resize_mode", settings.resize_mode},
            {"fill_color", settings.fill_color}};
  }

  const ModelFile& file_;
  ModelSettings model_;
  std::string path_;
};

}  // namespace

bool is_sparo(const ModelSettings& model) {
  return model.image.readout.name == "sparo" || (model.text && model.text->readout.name == "sparo");
}

std::string open_clip_config(const ModelFile& file, const std::string& path) {
  return OpenClipConfigWriter(file, path).whole().dump(2) + "\n";
}

std::vector<PublishedDraft> open_clip_drafts(const ModelFile& file, const std::string& origin) {
  if (!file.model.text) user_error(origin, ": OpenCLIP has no class for this model: it has no text tower");
  const OpenClipJson carried = carried_json(file, "open_clip", "open_clip_config.json");
  const OpenClipJson theirs = carried.value("model_cfg", OpenClipJson::object());
  std::vector<PublishedDraft> out;
  const OpenClipConfigWriter writer(file, origin);
  const auto add = [&](OpenClipJson config) {
    const bool of_carried = !theirs.empty();
    // Keeps the settings of CoCa's decoder, and settings that only training uses.
    for (const char* key : {"multimodal_cfg", "init_logit_scale", "custom_text"})
      if (theirs.contains(key)) config["model_cfg"][key] = theirs.at(key);
    const OpenClipJson& vision = config.at("model_cfg").at("vision_cfg");
    const std::string what = vision.value("timm_model_name", std::string("its own image tower"));
    out.push_back({"OpenCLIP's model with " + what, {{"open_clip_config.json", config.dump(2) + "\n"}}, {}, of_carried});
  };
  std::vector<OpenClipJson> texts = {OpenClipJson::object()}, visions = writer.timm_visions();
  // OpenCLIP's own tower, here an empty object, comes before timm's, so that create_model("ViT-B-32") can load the file.
  visions.insert(visions.begin(), OpenClipJson::object());
  if (theirs.contains("text_cfg")) texts.insert(texts.begin(), theirs.at("text_cfg"));
  if (theirs.contains("vision_cfg")) visions.insert(visions.begin(), theirs.at("vision_cfg"));
  std::string reason;
  for (const OpenClipJson& text : texts) {
    for (const OpenClipJson& vision : visions) {
      try {
        add(vision.empty() ? writer.with_own_vision(text) : writer.with_vision(vision, text));
      } catch (const UserError& error) {
        reason = error.what();  // OpenCLIP cannot express the model in this way
      }
    }
  }
  if (out.empty()) user_error(reason);
  return out;
}

}  // namespace tessera
