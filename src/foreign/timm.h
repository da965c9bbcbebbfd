#pragma once

#include "src/foreign/foreign_config.h"
#include "src/foreign/foreign_model.h"

namespace tessera {

/// How OpenCLIP pools and projects a timm model (timm_pool and timm_proj), where this differs from the timm
/// architecture itself.
struct TimmHead {
  std::string pool;                        // "token", "avg", "map", or "" for the architecture's own
  std::optional<std::int64_t> classifier;  // number of outputs of timm's classifier, which OpenCLIP uses as a projection
  std::int64_t linear = 0, mlp = 0;        // output widths of OpenCLIP's projections behind the timm model; 0: none
  bool bias = false;                       // whether the last linear map of the projection has a bias
};

/// The image tower for a name from the table configs/architectures/timm.json.
struct TimmTower {
  TowerSettings tower;
  Preprocessing preprocessing;
  std::vector<TensorRule> rules;  // from timm's names to our names within a tower
};

/// Returns the tower for a timm name. `arguments` are arguments of create_model (timm's model_args), such as img_size
/// and depth, that have a counterpart here. Throws UserError naming `path` for an unknown name, a name that the table
/// refuses, or an unknown argument.
TimmTower timm_tower(const std::string& name, const ForeignConfig& arguments, const TimmHead& head, const std::string& path);

/// A timm name from the table, and the differences between timm's model of that name and the model that is passed to timm_names().
struct TimmName {
  std::string name;
  nlohmann::json arguments;         // create_model's arguments, if the model's size or shape differs from that of timm's model
  std::string pool;                 // the model's pooling where it differs from timm's default for the architecture name; otherwise empty
  std::vector<std::string> unlike;  // the settings in which the model differs from timm's model
  int distance;                     // sort key: lower is a better match
};

/// Returns the timm names of the image tower's class. The names whose settings equal the model's come first, then the other names, sorted
/// by how many settings differ, fewest first. any_shape: true if create_model's arguments may set another depth, width or patch size.
std::vector<TimmName> timm_names(const ModelSettings& model, const TimmHead& head, bool any_shape);

/// Returns timm's name of a tower's pooling: "token", "avg" or "map"; the read-out's name if timm has none.
std::string timm_pool_of(const TowerSettings& image);

/// Returns the model that a timm folder's config.json describes.
ForeignModel timm_model(const ForeignConfig& config);

}  // namespace tessera
