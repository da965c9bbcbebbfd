#include <nlohmann/json.hpp>

#include <tessera/base/error.h>
#include <tessera/models/modified_resnet.h>
#include <tessera/models/open_clip.h>
#include <tessera/models/projections.h>
#include <tessera/models/readouts/attention_pool_2d.h>
#include <tessera/models/readouts/pooling.h>
#include <tessera/models/text_transformer.h>
#include <tessera/models/vit.h>

namespace tessera {
namespace {

using OpenClipJson = nlohmann::ordered_json;

class OpenClipConfigWriter {
 public:
  OpenClipConfigWriter(const ModelFile& file, const std::string& path)
      : file_(file), model_(resolve(file.model)), path_(path) {}

  OpenClipJson whole() const {
    if (!model_.text) refuse("a model without a text tower");
    require(!model_.unit_length, "embeddings of unit length");
    for (const TowerSettings* tower : {&image(), &text()})
      require(tower->projection.name != "linear" || !read<LinearProjectionSettings>(tower->projection).bias, "a projection with a bias");
    return {{"model_cfg", model()}, {"preprocess_cfg", preprocessing()}};
  }

 private:
  template <class... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    user_error(path_, ": OpenCLIP has no counterpart of ", parts...,
               ": read this model with python/tessera_model.py, in plain PyTorch");
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

  OpenClipJson model() const {
    const bool resnet = image().encoder.name == "modified_resnet";
    OpenClipJson out;
    out["embed_dim"] = embed_dim();
    out["quick_gelu"] = quick_gelu();
    if (const auto bias = file_.weights.find("logit_bias"); bias != file_.weights.end())
      out["init_logit_bias"] = bias->second.item<double>();
    out["vision_cfg"] = resnet ? modified_resnet() : vit();
    out["text_cfg"] = text_transformer();
    return out;
  }

  std::int64_t embed_dim() const {
    if (text().projection.name == "linear") return read<LinearProjectionSettings>(text().projection).embed_dim;
    return read<TextTransformerSettings>(text().encoder).width;
  }

  // One setting for both towers; a ResNet's is ReLU whatever it says.
  bool quick_gelu() const {
    if (text().encoder.name != "text_transformer") refuse("the text encoder ", text().encoder.name);
    const bool quick = read<TextTransformerSettings>(text().encoder).activation == "quick_gelu";
    if (image().encoder.name == "vit")
      require((read<VitSettings>(image().encoder).activation == "quick_gelu") == quick, "quick_gelu in one tower alone");
    return quick;
  }

  OpenClipJson vit() const {
    if (image().encoder.name != "vit") refuse("the image encoder ", image().encoder.name);
    const auto settings = read<VitSettings>(image().encoder);
    require(settings.class_token, "an image tower without a class token");
    require(settings.position_embedding == "learned", "an image tower without positions");
    require(settings.stem == "patch" && !settings.patch_bias, "another stem than a convolution without bias");
    require(settings.registers == 0 && settings.prefix_positions != "none", "registers, or a class token without a position");
    require(!settings.rotary, "rotary positions");
    require(settings.final_norm != "none", "an image tower without a final norm");
    OpenClipJson out = {{"image_size", size(settings.image_size)}, {"patch_size", size(settings.patch_size)}};
    out.update(transformer(settings));
    out["head_width"] = settings.width / settings.heads;
    if (!settings.pre_norm) out["no_ln_pre"] = true;
    if (settings.final_norm == "pooled") out["final_ln_after_pool"] = true;
    if (image().readout.name == "gap") {
      require(read<PositionsSettings>(image().readout).skip_prefix <= 1, "a mean that leaves out patches");
      out["pool_type"] = "avg";
    } else if (image().readout.name != "cls") {
      refuse("the image read-out ", image().readout.name);
    }
    if (image().projection.name != "linear") refuse("the projection ", image().projection.name, " behind a ViT");
    return out;
  }

  OpenClipJson modified_resnet() const {
    const auto settings = read<ModifiedResnetSettings>(image().encoder);
    if (image().readout.name != "attention_pool_2d") refuse("the image read-out ", image().readout.name, " of a ResNet");
    require(image().projection.name == "none", "a projection behind a ResNet's attention_pool_2d");
    require(settings.image_size.height == settings.image_size.width, "a ResNet for pictures that are not square");
    const auto pool = read<AttentionPool2dSettings>(image().readout);
    return {{"image_size", size(settings.image_size)},
            {"layers", settings.layers},
            {"width", settings.width},
            {"patch_size", nullptr},
            {"head_width", settings.width * ModifiedResnet::kWidening / pool.heads}};
  }

  OpenClipJson text_transformer() const {
    const auto settings = read<TextTransformerSettings>(text().encoder);
    require(settings.attention == "causal", "bidirectional attention that leaves out a text's padding");
    require(settings.final_norm != "none", "a text tower without a final norm");
    require(settings.class_token == "none", "a class token behind texts");
    require(settings.position_embedding == "learned" && !settings.position_rows && settings.position_offset == 0 && settings.token_types == 0 &&
                settings.embedding_scale == 1 && !settings.pre_norm,
            "other embeddings of texts than CLIP's");
    OpenClipJson out = {{"context_length", settings.context_length}, {"vocab_size", settings.vocab_size}};
    out.update(transformer(settings));
    out["heads"] = settings.heads;
    if (text().readout.name != "eos") refuse("the text read-out ", text().readout.name);
    if (text().projection.name == "none")
      out["proj_type"] = "none";
    else if (text().projection.name != "linear")
      refuse("the text tower's projection ", text().projection.name);
    const auto readout = read<EosSettings>(text().readout);
    if (readout.eos_id) {
      out["pool_type"] = "eos";
      out["eos_id"] = *readout.eos_id;
    } else {
      // OpenCLIP looks for the largest id: that is the last real token with CLIP's own tokenizer.
      const bool last_is_largest = file_.tokenizer.name.empty() || file_.tokenizer.name == "clip-bpe";
      if (readout.position == "mask" && !last_is_largest)
        refuse("the text read-out eos at the last token of the tokenizer ", file_.tokenizer.name);
    }
    return out;
  }

  OpenClipJson transformer(const TransformerSettings& settings) const {
    const TransformerSettings defaults;
    require(settings.mlp == "plain" && !settings.mlp_norm && !settings.mlp_input_norm, "a gated or normalized MLP");
    require(settings.block_norm == "before", "norms that stand elsewhere than before attention and MLP");
    require(settings.qkv_bias == "all" && !settings.qk_norm && !settings.attention_norm, "attention without biases or with norms");
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
    return {{"size", size(settings.image_size)},  {"mode", "RGB"},
            {"mean", settings.mean},              {"std", settings.std},
            {"interpolation", settings.interpolation}, {"resize_mode", settings.resize_mode},
            {"fill_color", settings.fill_color}};
  }

  static OpenClipJson size(const config::Size& size) {
    if (size.height == size.width) return size.height;
    return OpenClipJson::array({size.height, size.width});
  }

  const ModelFile& file_;
  ModelSettings model_;
  const std::string& path_;
};

}  // namespace

bool is_sparo(const ModelSettings& model) {
  return model.image.readout.name == "sparo" || (model.text && model.text->readout.name == "sparo");
}

std::string open_clip_config(const ModelFile& file, const std::string& path) {
  return OpenClipConfigWriter(file, path).whole().dump(2) + "\n";
}

}  // namespace tessera
