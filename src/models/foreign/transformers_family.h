#pragma once

#include <set>
#include <span>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "src/models/foreign/foreign_config.h"
#include <tessera/models/foreign/foreign_model.h>
#include <tessera/models/vit.h>

/// What the families of transformers have in common.
namespace tessera {

using Rules = std::vector<TensorRule>;
using Json = nlohmann::json;

/// A family by its model_type: how its configuration is read and, where transformers has a class for it, how one is written.
struct Family {
  const char* model_type;
  ForeignModel (*read)(const ForeignConfig&);
  const char* architecture = nullptr;  // the class; null: the family is only read
  const char* processor = nullptr;
  bool texts = false;
  Json (*config)(const ModelFile&) = nullptr;  // what a class lacks shows when the file is read again
  int mask_token_dims = 0;  // of the mask token [1, ..., width], which our models lack; 0: the class has none
};

/// CLIP, MetaCLIP 2 and SigLIP, both towers or one.
std::span<const Family> clip_families();
/// DINOv2, DINOv3 and ViT.
std::span<const Family> dino_families();

Rules joined(Rules first, const Rules& second);
Json joined(Json first, const Json& second, const Json& third = Json::object());

/// Rules for names with and without `prefix`, which transformers puts before a tower that it saves as part of a larger class
/// (Dinov2ForImageClassification: `dinov2.`). Names are written without it where config.json names one of the classes in `bare`.
Rules with_and_without(const Rules& rules, const std::string& prefix, const ForeignConfig& c, const std::set<std::string>& bare);

/// Reads the keys that all families share; the family's defaults stand in `s`.
void read_blocks(TransformerSettings& s, const ForeignConfig& c);
void read_images(VitSettings& s, const ForeignConfig& c);

/// The same keys, written.
Json blocks_config(const TransformerSettings& s);
Json images_config(const VitSettings& s);

/// The output width of a tower's linear projection.
std::int64_t embed_dim_of(const TowerSettings& tower);

}  // namespace tessera
