#pragma once

#include "src/models/foreign/foreign_config.h"
#include <tessera/models/foreign/foreign_model.h>

namespace tessera {

/// How a timm model ends, where it is not as its architecture says: OpenCLIP's timm_pool and timm_proj.
struct TimmHead {
  std::string pool;                        // "token", "avg", "map" or "": the architecture's own
  std::optional<std::int64_t> classifier;  // outputs of timm's classifier, which OpenCLIP takes for a projection
  std::int64_t linear = 0, mlp = 0;        // outputs of OpenCLIP's projections behind it; 0: none
  bool bias = false;                       // whether the last map of either has a bias
};

/// An image tower by a timm name, of the table configs/architectures/timm.json.
struct TimmTower {
  TowerSettings tower;
  Preprocessing preprocessing;
  std::vector<TensorRule> rules;  // timm's names to those of a tower
};

/// `arguments` are create_model's (timm's model_args): img_size, depth and what else has a counterpart. Throws UserError
/// naming `path` and what our models lack: an unknown name, one that the table calls refused, an unknown argument.
TimmTower timm_tower(const std::string& name, const ForeignConfig& arguments, const TimmHead& head, const std::string& path);

/// A name of the table beside a model's image tower.
struct TimmName {
  std::string name;
  nlohmann::json arguments;         // create_model's, where the model has another size or shape
  std::string pool;                 // where it is pooled otherwise than the name says
  std::vector<std::string> unlike;  // the settings in which it is another model
  int distance;                     // by which names are sorted
};

/// The names whose class is the image tower's, the nearest first: those whose settings are the model's, then those with the
/// fewest differences. `any_shape`: whether create_model's arguments may ask for another depth, width or patch size.
std::vector<TimmName> timm_names(const ModelSettings& model, const TimmHead& head, bool any_shape);

/// timm's name of how a tower is pooled: "token", "avg" or "map"; that of the read-out where timm has none.
std::string timm_pool_of(const TowerSettings& image);

/// What a folder's config.json of timm's says.
ForeignModel timm_model(const ForeignConfig& config);

}  // namespace tessera
