#pragma once

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include <tessera/models/dual_encoder.h>

/// What OpenCLIP knows by name, from the table configs/architectures/open_clip.json.
namespace tessera {

/// Names of OpenCLIP's architectures (ViT-B-32, ViT-B-16-quickgelu, RN50, ...).
std::vector<std::string> architecture_names();

/// OpenCLIP's own settings of an architecture, the `model_cfg` of open_clip_config.json. `-quickgelu` may be put behind any
/// name. Throws UserError for an unknown name, with the nearest known one.
nlohmann::json open_clip_architecture(const std::string& name);

/// The published weights of an architecture by tag (laion2b_s34b_b79k): an object each with `hf_hub` or `url`, and what of
/// `quick_gelu` and `preprocess_cfg` is unlike OpenCLIP's defaults. Empty where there are none.
nlohmann::json open_clip_pretrained(const std::string& name);

/// The same settings as ours. Weights published by OpenAI, and a few others, need the name that ends in `-quickgelu`. Throws
/// UserError for an unknown name, and for one that our models have no counterpart of.
ModelSettings architecture(const std::string& name);

}  // namespace tessera
