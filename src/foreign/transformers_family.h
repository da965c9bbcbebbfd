#pragma once

#include <functional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "src/foreign/foreign_config.h"
#include "src/foreign/foreign_model.h"
#include "src/models/vit.h"
#include <tessera/preprocessing.h>

namespace tessera {

/// Reads config.json and preprocessor_config.json of Hugging Face's transformers. Supports CLIP, SigLIP, SigLIP 2 (of
/// fixed resolution and NaFlex), DINOv2 with and without registers, and DINOv3's ViT. Throws UserError naming a key that has no
/// counterpart.
ForeignModel transformers_model(const ForeignConfig& config, const std::string& folder);

/// The files that can hold the settings of an image processor. transformers writes the first since version 5, with the settings under the
/// key kImageProcessor, and prefers it on reading.
inline constexpr const char *kProcessorName = "processor_config.json", *kPreprocessorName = "preprocessor_config.json";
inline constexpr const char* kImageProcessor = "image_processor";

/// The image processor that keeps the images' shapes.
inline constexpr const char* kNaflexProcessor = "Siglip2ImageProcessor";

/// Replaces settings in `p` by those of a folder's image processor, if the folder has one. Throws UserError naming the file and a key that
/// our preprocessing does not support.
void read_preprocessing(Preprocessing& p, const std::string& folder);

/// Returns the settings of an image processor of transformers.
nlohmann::json preprocessor_config(const Preprocessing& p, const char* processor);

using Rules = std::vector<TensorRule>;
using Json = nlohmann::json;

/// A family of transformers' models. Defines how a model's configuration is read and, if models can be written as one
/// of the family's classes, how the configuration is written.
struct Family {
  const char* model_type;
  ForeignModel (*read)(const ForeignConfig&);
  const char* architecture = nullptr;  // the class that a written config.json names; null if Tessera only reads this family
  const char* processor = nullptr;     // the class of the image processor; null if the folder has none
  FolderTowers towers = FolderTowers::image;
  /// Returns the settings for config.json. Does not check whether the class supports the model; the caller checks this by reading the file
  /// back.
  std::function<Json(const ModelFile&)> config = nullptr;
  int mask_token_dims = 0;  // number of dimensions of the class's mask token [1, ..., 1, width]; 0 if it has none. Our models have none.
};

/// Returns the families CLIP, MetaCLIP 2 and SigLIP, with both towers or only one.
std::span<const Family> clip_families();
/// Returns the families DINOv2, DINOv3 and ViT.
std::span<const Family> dino_families();

/// Returns a model with only an image tower or only a text tower.
ForeignModel image_tower_alone(const TowerSettings& tower, const Rules& rules, const std::vector<PartLeftOut>& left_out);
ForeignModel text_tower_alone(const TowerSettings& tower, const Rules& rules, const std::vector<PartLeftOut>& left_out);

/// Returns rules that read names with and without `prefix`, which transformers adds if a tower is saved as part of a larger class
/// (Dinov2ForImageClassification adds `dinov2.`). Names are written without it if config.json names one of the classes in `bare`.
Rules with_and_without(const Rules& rules, const std::string& prefix, const ForeignConfig& c, const std::set<std::string>& bare);

/// List the keys that all families share. Before reading, the settings must be the family's defaults.
void block_keys(const ForeignKeys& keys, TransformerSettings& s);
void image_keys(const ForeignKeys& keys, VitSettings& s);

/// Returns the settings of a model's image tower, or default settings if its encoder is not a vit.
VitSettings vit_settings_of(const ModelFile& file);

/// Returns the keys that `list` lists, with the values of these settings.
template <class Settings>
Json written(void (*list)(const ForeignKeys&, Settings&), Settings settings) {
  Json out;
  list(ForeignKeys(out), settings);
  return out;
}

/// Returns the JSON object `first` with the keys of `second`, whose values take precedence.
Json joined(Json first, const Json& second);

/// Returns the output width of a tower's linear projection.
std::int64_t embed_dim_of(const TowerSettings& tower);

}  // namespace tessera
