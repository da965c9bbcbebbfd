#pragma once

#include "src/models/foreign/foreign_config.h"
#include <tessera/models/foreign/foreign_model.h>

namespace tessera {

/// The end of a timm model, where it differs from its architecture's: OpenCLIP's timm_pool and timm_proj.
struct TimmHead {
  std::string pool;                        // "token", "avg", "map" or "": the architecture's own
  std::optional<std::int64_t> classifier;  // outputs of timm's classifier, which OpenCLIP uses as a projection
  std::int64_t linear = 0, mlp = 0;        // outputs of OpenCLIP's projections after it; 0: none
  bool bias = false;                       // whether the last map of either projection has a bias
};

/// An image tower for a timm name from the table configs/architectures/timm.json.
struct TimmTower {
  TowerSettings tower;
  Preprocessing preprocessing;
  std::vector<TensorRule> rules;  // from timm's names to a tower's
};

/// `arguments` are create_model's (timm's model_args): img_size, depth and others with a counterpart. Throws UserError
/// naming `path` and what our models lack: an unknown name, one that the table refuses, or an unknown argument.
TimmTower timm_tower(const std::string& name, const ForeignConfig& arguments, const TimmHead& head, const std::string& path);

/// A name of the table, compared with a model's image tower.
struct TimmName {
  std::string name;
  nlohmann::json arguments;         // create_model's, if the model has another size or shape
  std::string pool;                 // set if it is pooled differently than the name says
  std::vector<std::string> unlike;  // the settings in which it differs
  int distance;                     // sort key
};

/// Returns the names with the image tower's class, nearest first: those with the model's settings, then those with the
/// fewest differences. `any_shape`: whether create_model's arguments may set another depth, width or patch size.
std::vector<TimmName> timm_names(const ModelSettings& model, const TimmHead& head, bool any_shape);

/// Returns timm's name of a tower's pooling: "token", "avg" or "map"; the read-out's name if timm has none.
std::string timm_pool_of(const TowerSettings& image);

/// Returns the model that a timm folder's config.json describes.
ForeignModel timm_model(const ForeignConfig& config);

}  // namespace tessera
