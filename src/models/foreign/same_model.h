#pragma once

#include <string>
#include <vector>

#include <tessera/models/foreign/foreign_model.h>

namespace tessera {

/// The settings in which two models compute otherwise for the same weights: "model.image.encoder.heads is 3, not 2", the first
/// model's value first. What is of meaning in training alone (dropout, start values, checkpointing) is no difference, and neither
/// are two ways to say the same.
std::vector<std::string> differences(const ModelSettings& first, const ModelSettings& second);

/// The same of towers; `path` is where they stand.
std::vector<std::string> differences(const TowerSettings& first, const TowerSettings& second, const std::string& path);

/// The same of a file's model and one of another library, whose texts are padded in that library's way.
std::vector<std::string> differences(const ModelFile& file, const ForeignModel& theirs);

}  // namespace tessera
