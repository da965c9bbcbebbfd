#pragma once

#include <string>
#include <vector>

#include <tessera/models/dual_encoder.h>

namespace tessera {

/// Compares two trees of settings. Returns a text for each setting that differs, such as "model.image.encoder.activation is gelu instead of
/// quick_gelu", where `path` is "model" and gelu is the value in `here`. Leaves out settings that only training uses, the sizes of images
/// and texts (learned positions of another size are reported when they are resampled) and names of files.
std::vector<std::string> setting_differences(const config::Node& here, const config::Node& there, const std::string& path);

/// Which towers to compare, each with what prepares its input.
struct ComparedTowers {
  bool image = true, text = true;
};

/// Does the same for the settings of two models, as resolve() returns them.
std::vector<std::string> setting_differences(const ModelSettings& here, const ModelSettings& there, ComparedTowers towers = {});

}  // namespace tessera
