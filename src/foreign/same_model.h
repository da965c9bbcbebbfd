#pragma once

#include <string>
#include <vector>

#include "src/foreign/foreign_model.h"

namespace tessera {

/// Returns the settings that make two models compute different results from the same weights, with the first model's
/// value first: "model.image.encoder.heads is 3, not 2". Settings that matter only in training (dropout, initial
/// values, checkpointing) do not count. Neither do different ways to express the same computation.
std::vector<std::string> differences(const ModelSettings& first, const ModelSettings& second);

/// Like the overload for ModelSettings, but for one tower of each model. `path` is the path of the towers in the settings ("model.image").
std::vector<std::string> differences(const TowerSettings& first, const TowerSettings& second, const std::string& path);

/// Like the overload for ModelSettings, but for a model file and another library's model. Also compares whether padding counts as text. If
/// the other model has no image tower, only the text towers are compared.
std::vector<std::string> differences(const ModelFile& file, const ForeignModel& theirs);

}  // namespace tessera
