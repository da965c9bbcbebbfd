#include "src/foreign/transformers_family.h"

#include <algorithm>

#include <ATen/ATen.h>

#include "src/foreign/draft.h"
#include "src/foreign/text_tower.h"
#include <tessera/base/text.h>

namespace tessera {
namespace {

/// Reads an encoder of text_families() as a model with only a text tower, which has no projection.
ForeignModel text_encoder(const ForeignConfig& c) {
  const TextFamily& family = text_family(c);
  const TextTransformerSettings encoder = family.read(c);
  TextTowerHead head;
  if (encoder.position_rows)
    head.context_length = std::min(head.context_length, *encoder.position_rows - encoder.position_offset);
  const TextTower tower = text_tower(c, head);
  const std::string prefix = family.prefix;
  const Rules bare = family.rules(encoder);
  Rules rules = with_and_without(bare, prefix, c, {"BertModel", "RobertaModel", "XLMRobertaModel", "ModernBertModel", "Gemma3TextModel"});
  rules = joined(rules, with_prefixes(bare, "encoder.", ""));
  for (const char* shared : {"model.shared.weight", "shared.weight"}) rules.push_back({{shared}, {"token_embedding.weight"}});
  std::vector<PartLeftOut> left_out;
  for (const std::string& of : {std::string(), prefix}) {
    left_out.push_back({of + "pooler.**", "the layer after the first token"});
    left_out.push_back({of + "embeddings.position_ids", ""});
    left_out.push_back({of + "embeddings.token_type_ids", ""});
  }
  for (const char* layers : {"cls.**", "lm_head.**", "classifier.**", "qa_outputs.**", "head.**", "decoder.weight", "decoder.bias"})
    left_out.push_back({layers, "the head for another task"});
  for (const char* table : {"shared.weight", "encoder.embed_tokens.weight"}) left_out.push_back({table, ""});
  for (const char* part : {"decoder.**", "model.decoder.**"}) left_out.push_back({part, "the text decoder"});
  return text_tower_alone(tower.tower, rules, left_out);
}

std::vector<Family> families() {
  std::vector<Family> out;
  for (const std::span<const Family> some : {clip_families(), dino_families()}) out.insert(out.end(), some.begin(), some.end());
  for (const TextFamily& text : text_families()) {
    const auto keys = [write = text.write](const ModelFile& file) {
      return write(settings_or_default<TextTransformerSettings>(file.model.text->encoder, "text_transformer"));
    };
    out.push_back({text.model_type, text_encoder, text.architecture, nullptr, FolderTowers::text, keys});
  }
  return out;
}

NamedTensors needed_by(const Family& family, const Json& config) {
  if (family.mask_token_dims == 0) return {};
  std::vector<std::int64_t> shape(static_cast<std::size_t>(family.mask_token_dims), 1);
  shape.back() = config.at("hidden_size").get<std::int64_t>();
  return {{"embeddings.mask_token", at::zeros(shape)}};
}

constexpr const char* kConfigName = "config.json";

}  // namespace

ForeignModel image_tower_alone(const TowerSettings& tower, const Rules& rules, const std::vector<PartLeftOut>& left_out) {
  ForeignModel out;
  out.model.image = tower;
  out.model.text.reset();
  out.rules = rules;
  out.left_out = left_out;
  return out;
}

ForeignModel text_tower_alone(const TowerSettings& tower, const Rules& rules, const std::vector<PartLeftOut>& left_out) {
  ForeignModel out;
  out.image_tower = false;
  out.model.text = tower;
  out.rules = rules;
  out.left_out = left_out;
  return out;
}

Rules with_and_without(const Rules& rules, const std::string& prefix, const ForeignConfig& c, const std::set<std::string>& bare) {
  const auto classes = c.get<std::vector<std::string>>("architectures", {});
  const Rules longer = with_prefixes(rules, prefix, "");
  return !classes.empty() && bare.contains(classes.front()) ? joined(rules, longer) : joined(longer, rules);
}

void block_keys(const ForeignKeys& keys, TransformerSettings& s) {
  keys("hidden_size", s.width);
  keys("num_hidden_layers", s.layers);
  keys("num_attention_heads", s.heads);
  s.mlp_hidden = mlp_width(s);
  keys("intermediate_size", *s.mlp_hidden);
  keys.activation("hidden_act", s.activation);
  keys("layer_norm_eps", s.norm_eps);
}

void image_keys(const ForeignKeys& keys, VitSettings& s) {
  block_keys(keys, s);
  keys.size("image_size", s.image_size);
  keys.size("patch_size", s.patch_size);
  s.partial_patches = has_partial_patches(s);
  keys.only<std::int64_t>("num_channels", 3);
}

VitSettings vit_settings_of(const ModelFile& file) {
  return settings_or_default<VitSettings>(file.model.image.encoder, "vit");
}

Json joined(Json first, const Json& second) {
  first.update(second);
  return first;
}

std::int64_t embed_dim_of(const TowerSettings& tower) {
  constexpr std::int64_t kUsual = 512;
  return tower.projection.name == "linear" ? config::to_json(tower.projection.settings).value("embed_dim", kUsual) : kUsual;
}

std::vector<PublishedDraft> transformers_drafts(const ModelFile& file, FolderTowers towers) {
  const nlohmann::ordered_json carried = carried_json(file, "transformers", kConfigName);
  std::vector<PublishedDraft> out;
  if (!file.model.text) towers = FolderTowers::image;
  for (const Family& family : families()) {
    if (family.architecture == nullptr || family.towers != towers) continue;
    Json config = family.config(file);
    config.update({{"model_type", family.model_type}, {"architectures", {family.architecture}}, {"dtype", "float32"}});
    PublishedDraft draft{concat("transformers' ", family.architecture), {}, needed_by(family, config), false};
    if (carried.value("model_type", "") == family.model_type) {
      config = merged(carried, config);
      draft.carries_parts = true;
      draft.files[kConfigName] = config.dump(2) + "\n";
      out.push_back(draft);  // this draft keeps the image processor's settings that came with the model
    }
    draft.files[kConfigName] = config.dump(2) + "\n";
    if (family.processor == nullptr) {
      out.push_back(draft);
      continue;
    }
    const Json images = preprocessor_config(file.model.preprocessing, family.processor);
    nlohmann::ordered_json processor = carried_json(file, "transformers", kProcessorName);
    const bool inside = processor.contains(kImageProcessor);
    if (inside) processor[kImageProcessor] = images;
    draft.files[inside ? kProcessorName : kPreprocessorName] = (inside ? processor.dump(2) : images.dump(2)) + "\n";
    out.push_back(draft);
  }
  return out;
}

ForeignModel transformers_model(const ForeignConfig& config, const std::string& folder) {
  const auto kind = config.get<std::string>("model_type", "");
  const std::vector<Family> all = families();
  const auto family = std::ranges::find_if(all, [&](const Family& one) { return one.model_type == kind; });
  if (family == all.end()) {
    std::set<std::string> known;
    for (const Family& one : all) known.insert(one.model_type);
    const std::string names = join_names({known.begin(), known.end()});
    config.refuse("model_type", concat("is not a supported family: ", names, " are (docs/pretrained.md)"));
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
  // Without a file, the defaults of transformers' own image processors apply.
  const bool bilinear = kind == "vit" || kind == "dinov3_vit";
  if (bilinear) preprocessing.interpolation = "bilinear";
  if (bilinear || kind.starts_with("siglip")) preprocessing.resize_mode = "squash";
  if (kind.starts_with("siglip2")) {
    preprocessing.interpolation = "bilinear";
    preprocessing.resize_mode = "naflex";
  }
  read_preprocessing(preprocessing, folder);
  out.model.image.encoder.settings.set("image_size", config::Value<config::Size>::dump(preprocessing.image_size));
  return out;
}

}  // namespace tessera
