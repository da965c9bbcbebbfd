#pragma once

#include "src/foreign/foreign_config.h"
#include "src/foreign/foreign_model.h"

namespace tessera {

/// Reads config.json and preprocessor_config.json of Hugging Face's transformers. Supports CLIP, SigLIP (and SigLIP 2
/// of fixed resolution), DINOv2 with and without registers, and DINOv3's ViT. Throws UserError naming a key that has no
/// counterpart.
ForeignModel transformers_model(const ForeignConfig& config, const std::string& folder);

}  // namespace tessera
