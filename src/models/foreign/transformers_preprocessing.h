#pragma once

#include <string>

#include "src/models/foreign/foreign_config.h"
#include <tessera/preprocessing.h>

namespace tessera {

/// Replaces settings in `p` by those of a folder's preprocessor_config.json, if the file exists. Throws UserError
/// naming the file and a key that our preprocessing does not support.
void read_preprocessing(Preprocessing& p, const std::string& folder);

/// Returns the content of preprocessor_config.json for an image processor of transformers.
nlohmann::json preprocessor_config(const Preprocessing& p, const char* processor);

}  // namespace tessera
