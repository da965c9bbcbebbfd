#include "src/foreign/transformers_family.h"

#include <algorithm>

#include <ATen/ATen.h>

#include "src/foreign/draft.h"
#include "src/foreign/text_tower.h"
#include "src/models/projections.h"
#include <tessera/base/text.h>

namespace tessera {
namespace {

/// Reads BERT, RoBERTa, XLM-RoBERTa or the encoder of NLLB as a model with only a text tower, which has no projection.
ForeignModel text_alone(const ForeignConfig& c) {
  const auto kind = c.get<std::string>("model_type", "");
  const bool m2m = kind == "m2m_100";
  TextTowerHead head;
  const std::int64_t rows = c.get<std::int64_t>("max_position_embeddings", 512) - (kind == "bert" ? 0 : c.get<std::int64_t>("pad_token_id", 1) + 1);
  if (!m2m) head.context_length = std::min(head.context_length, rows);
  const TextTower tower = text_tower(c, head);
  const std::string prefix = m2m ? "model.encoder." : kind == "bert" ? "bert." : "roberta.";
  const Rules bare = text_encoder_rules(c);
  ForeignModel out;
  out.image_tower = false;
  out.model.text = tower.tower;
  out.rules = joined(joined(with_prefixes(bare, prefix, ""), bare), with_prefixes(bare, "encoder.", ""));
  if (m2m) out.rules.push_back({{"model.shared.weight"}, {"token_embedding.weight"}});
  for (const std::string& of : {std::string(), prefix}) {
    out.left_out.push_back({of + "pooler.**", "the layer after the first token"});
    out.left_out.push_back({of + "embeddings.position_ids", ""});
    out.left_out.push_back({of + "embeddings.token_type_ids", ""});
  }
  for (const char* layers : {"cls.**", "lm_head.**", "classifier.**", "qa_outputs.**"}) out.left_out.push_back({layers, "the head for another task"});
  for (const char* part : {"decoder.**", "model.decoder.**"}) out.left_out.push_back({part, "the text decoder"});
  return out;
}

constexpr Family kTextFamilies[] = {
    {"bert", text_alone},
    {"roberta", text_alone},
    {"xlm-roberta", text_alone},
    {"m2m_100", text_alone},
};

std::vector<Family> families() {
  std::vector<Family> out;
  for (const std::span<const Family> some : {clip_families(), dino_families(), std::span<const Family>(kTextFamilies)})
    out.insert(out.end(), some.begin(), some.end());
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

Rules joined(Rules first, const Rules& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

Rules with_and_without(const Rules& rules, const std::string& prefix, const ForeignConfig& c, const std::set<std::string>& bare) {
  const auto classes = c.get<std::vector<std::string>>("architectures", {});
  const Rules longer = with_prefixes(rules, prefix, "");
  return !classes.empty() && bare.contains(classes.front()) ? joined(rules, longer) : joined(longer, rules);
}

void read_blocks(TransformerSettings& s, const ForeignConfig& c) {
  s.width = c.get("hidden_size", s.width);
  s.layers = c.get("num_hidden_layers", s.layers);
  s.heads = c.get("num_attention_heads", s.heads);
  s.mlp_hidden = c.get("intermediate_size", s.mlp_hidden.value_or(4 * s.width));
  s.activation = c.activation("hidden_act", s.activation);
  s.norm_eps = c.get("layer_norm_eps", s.norm_eps);
}

void read_images(VitSettings& s, const ForeignConfig& c) {
  s.image_size = c.size("image_size", s.image_size);
  s.patch_size = c.size("patch_size", s.patch_size);
  s.partial_patches = has_partial_patches(s);
  c.expect<std::int64_t>("num_channels", 3);
}

Json joined(Json first, const Json& second, const Json& third) {
  first.update(second);
  first.update(third);
  return first;
}

Json blocks_config(const TransformerSettings& s) {
  return {{"hidden_size", s.width},         {"num_hidden_layers", s.layers},
          {"num_attention_heads", s.heads}, {"intermediate_size", mlp_width(s)},
          {"layer_norm_eps", s.norm_eps},   {"hidden_act", s.activation == "gelu_tanh" ? "gelu_pytorch_tanh" : s.activation}};
}

Json images_config(const VitSettings& s) {
  return {{"image_size", size_json(s.image_size)}, {"patch_size", size_json(s.patch_size)}, {"num_channels", 3}};
}

std::int64_t embed_dim_of(const TowerSettings& tower) {
  return settings_or_default<LinearProjectionSettings>(tower.projection, "linear").embed_dim;
}

std::vector<PublishedDraft> transformers_drafts(const ModelFile& file) {
  const nlohmann::ordered_json carried = carried_json(file, "transformers", kConfigName);
  std::vector<PublishedDraft> out;
  for (const Family& family : families()) {
    if (family.architecture == nullptr || family.texts != file.model.text.has_value()) continue;
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
    config.refuse("model_type", concat("is not a supported family: ", join_names({known.begin(), known.end()}), " are (docs/pretrained.md)"));
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
  read_preprocessing(preprocessing, folder);
  out.model.image.encoder.settings.set("image_size", config::Value<config::Size>::dump(preprocessing.image_size));
  return out;
}

}  // namespace tessera
