#pragma once

#include <string>

#include "src/models/foreign/foreign_config.h"
#include <tessera/preprocessing.h>

namespace tessera {

/// Reads preprocessor_config.json of a folder on top of `p`, if the file exists. Throws UserError naming the file and a
/// key that our preprocessing lacks.
void read_preprocessing(Preprocessing& p, const std::string& folder);

/// Returns the content of that file, as JSON, for an image processor of transformers.
nlohmann::json preprocessor_config(const Preprocessing& p, const char* processor);

}  // namespace tessera
