#pragma once

#include <span>

#include "src/foreign/foreign_config.h"
#include "src/foreign/foreign_model.h"
#include "src/models/text_transformer.h"

namespace tessera {

/// The parts that OpenCLIP's HFTextEncoder adds to an encoder of transformers.
struct TextTowerHead {
  std::string pooler;      // "mean_pooler", "cls_pooler" or "cls_last_hidden_state_pooler"; "": the family's default
  std::string projection;  // "linear", "mlp", or "" for none
  std::int64_t embed_dim = 0;
  std::int64_t context_length = 77;
};

struct TextTower {
  TowerSettings tower;
  std::vector<TensorRule> rules;  // map HFTextEncoder's names to ours
};

/// Returns the settings of the transformers encoder that OpenCLIP calls `name` (`hf_model_name`). They come from
/// config.json in `folder` or in the folder `name`. If neither exists, they come from a row of
/// configs/architectures/text_towers.json. Throws UserError naming `path` if the settings are in none of these places.
ForeignConfig text_tower_config(const std::string& name, const std::string& folder, const std::string& path);

/// A family of transformers' text encoders.
struct TextFamily {
  const char* model_type;
  TextTransformerSettings (*read)(const ForeignConfig&);
  /// Returns the rules for an encoder with these settings, with the names in the encoder's own class.
  std::vector<TensorRule> (*rules)(const TextTransformerSettings&);
  const char* prefix;        // which classes with more parts put before these names
  const char* usual_pooler;  // OpenCLIP's, if its configuration names none
  bool cls_layer = false;    // whether OpenCLIP's cls_pooler applies a layer of the encoder to the first token
  const char* architecture = nullptr;  // the class that a written config.json names; null if Tessera only reads this family
  /// Returns the keys of config.json for these settings.
  nlohmann::json (*write)(const TextTransformerSettings&) = nullptr;
};

/// Returns the families: BERT, RoBERTa, XLM-RoBERTa, the encoder of M2M-100 (NLLB), ModernBERT, the encoders of T5 and mT5, and Gemma 3.
std::span<const TextFamily> text_families();

/// Returns the family of a configuration. Throws UserError naming the file if there is none.
const TextFamily& text_family(const ForeignConfig& config);

/// Returns the text tower for the settings of a transformers encoder. Throws UserError naming the file and the key that has no counterpart
/// here.
TextTower text_tower(const ForeignConfig& config, const TextTowerHead& head);

}  // namespace tessera
