#pragma once

#include <string>

#include "src/foreign/foreign_config.h"
#include <tessera/preprocessing.h>

namespace tessera {

/// The files that can hold the settings of an image processor. transformers writes the first since version 5, with the settings under the
/// key kImageProcessor, and prefers it on reading.
inline constexpr const char *kProcessorName = "processor_config.json", *kPreprocessorName = "preprocessor_config.json";
inline constexpr const char* kImageProcessor = "image_processor";

/// Replaces settings in `p` by those of a folder's image processor, if the folder has one. Throws UserError naming the file and a key that
/// our preprocessing does not support.
void read_preprocessing(Preprocessing& p, const std::string& folder);

/// Returns the settings of an image processor of transformers.
nlohmann::json preprocessor_config(const Preprocessing& p, const char* processor);

}  // namespace tessera
