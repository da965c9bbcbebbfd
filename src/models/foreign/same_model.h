#pragma once

#include <string>
#include <vector>

#include <tessera/models/foreign/foreign_model.h>

namespace tessera {

/// Returns the settings in which two models compute different results from the same weights, with the first model's
/// value first: "model.image.encoder.heads is 3, not 2". Settings that matter only in training (dropout, initial
/// values, checkpointing) do not count, nor do two ways to express the same.
std::vector<std::string> differences(const ModelSettings& first, const ModelSettings& second);

/// The same for towers; `path` is where they are in the model.
std::vector<std::string> differences(const TowerSettings& first, const TowerSettings& second, const std::string& path);

/// The same for a file's model and another library's model, with texts padded as that library does.
std::vector<std::string> differences(const ModelFile& file, const ForeignModel& theirs);

}  // namespace tessera
