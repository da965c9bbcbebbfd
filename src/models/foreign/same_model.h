#pragma once

#include <string>
#include <vector>

#include <tessera/models/foreign/foreign_model.h>

namespace tessera {

/// Returns the settings that make two models compute different results from the same weights, with the first model's
/// value first: "model.image.encoder.heads is 3, not 2". Settings that matter only in training (dropout, initial
/// values, checkpointing) do not count. Neither do different ways to express the same computation.
std::vector<std::string> differences(const ModelSettings& first, const ModelSettings& second);

/// Does for two towers what differences() does for two ModelSettings. `path` is the place of the towers in the model's settings.
std::vector<std::string> differences(const TowerSettings& first, const TowerSettings& second, const std::string& path);

/// Does for a file's model and another library's model what differences() does for two ModelSettings. Also compares the padding of texts.
std::vector<std::string> differences(const ModelFile& file, const ForeignModel& theirs);

}  // namespace tessera
