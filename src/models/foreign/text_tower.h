#pragma once

#include "src/models/foreign/foreign_config.h"
#include <tessera/models/foreign/foreign_model.h>

namespace tessera {

/// What OpenCLIP puts around an encoder of transformers: its HFTextEncoder.
struct TextTowerHead {
  std::string pooler;      // "mean_pooler", "cls_pooler" or "cls_last_hidden_state_pooler"; "": that of the family
  std::string projection;  // "linear", "mlp", or "": none
  std::int64_t embed_dim = 0;
  std::int64_t context_length = 77;
};

struct TextTower {
  TowerSettings tower;
  std::vector<TensorRule> rules;  // from HFTextEncoder's names
};

/// The settings of an encoder of transformers by the name that OpenCLIP has for it (`hf_model_name`): config.json in `folder`, or in
/// the folder of that name, or else a row of configs/architectures/text_towers.json. Throws UserError naming `path` for a name that
/// is in neither place.
ForeignConfig text_tower_config(const std::string& name, const std::string& folder, const std::string& path);

/// The text tower of such settings: BERT, RoBERTa, XLM-RoBERTa and the encoder of M2M-100 (NLLB). Throws UserError naming the file and
/// the key that has no counterpart here.
TextTower text_tower(const ForeignConfig& config, const TextTowerHead& head);

/// The rules of such an encoder by transformers' own names, without what a larger class puts before them.
std::vector<TensorRule> text_encoder_rules(const ForeignConfig& config);

}  // namespace tessera
