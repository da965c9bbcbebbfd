#pragma once

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "src/foreign/foreign_model.h"

/// The architectures that have names in OpenCLIP, from the table configs/architectures/open_clip.json.
namespace tessera {

/// Returns the names of OpenCLIP's architectures (ViT-B-32, ViT-B-16-quickgelu, RN50, ...).
std::vector<std::string> architecture_names();

/// Returns OpenCLIP's own settings of an architecture, the `model_cfg` of open_clip_config.json. Any name may end in
/// `-quickgelu`. Throws UserError for an unknown name, with the nearest known one.
nlohmann::json open_clip_architecture(const std::string& name);

/// Returns an architecture's published weights: one object for each tag (such as laion2b_s34b_b79k). Each has `hf_hub`
/// or `url`, and also `quick_gelu` and `preprocess_cfg` if they differ from OpenCLIP's defaults. Empty if no weights
/// are published.
nlohmann::json open_clip_pretrained(const std::string& name);

/// Returns an architecture's settings as ModelSettings. Weights published by OpenAI, and a few others, need the name
/// that ends in `-quickgelu`. Throws UserError for an unknown name, and for an architecture that our models cannot
/// represent.
ModelSettings architecture(const std::string& name);

/// Does the same as architecture(), but also returns what is needed to read the model's tensors and to choose its tokenizer.
ForeignModel described_architecture(const std::string& name);

}  // namespace tessera
