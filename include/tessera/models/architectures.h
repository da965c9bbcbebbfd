#pragma once

#include <string>
#include <vector>

#include <tessera/models/dual_encoder.h>

namespace tessera {

/// Names of OpenCLIP's architectures that architecture() knows (ViT-B-32, ViT-B-16-quickgelu, RN50, ...).
std::vector<std::string> architecture_names();

/// The settings of an OpenCLIP architecture. Weights published by OpenAI, and a few others, need the name that ends in
/// `-quickgelu`. Throws UserError for an unknown name, with the nearest known one.
ModelSettings architecture(const std::string& name);

}  // namespace tessera
