#pragma once

#include "src/foreign/foreign_config.h"
#include "src/foreign/foreign_model.h"

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

/// Returns the text tower for the settings of a transformers encoder: BERT, RoBERTa, XLM-RoBERTa or the encoder of
/// M2M-100 (NLLB). Throws UserError naming the file and the key that has no counterpart here.
TextTower text_tower(const ForeignConfig& config, const TextTowerHead& head);

/// Returns the rules for a transformers encoder. The rules use the names in the encoder's own class, without the prefix (such as `bert.`)
/// that a class with more parts adds.
std::vector<TensorRule> text_encoder_rules(const ForeignConfig& config);

}  // namespace tessera
