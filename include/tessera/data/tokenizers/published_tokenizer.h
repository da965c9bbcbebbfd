#pragma once

#include <map>
#include <string>

#include <tessera/models/foreign/foreign_model.h>

namespace tessera {

/// Puts the tokenizer of the published folder that a model's weights came from into the model file. Returns an empty text on
/// success, and if the file already has the right tokenizer, CLIP's. Otherwise returns why the tokenizer cannot be read, and
/// leaves the file without one.
std::string take_published_tokenizer(const ForeignModel& foreign, const std::string& folder, ModelFile& file);

/// Returns the files that another library needs to tokenize for this model: tokenizer.json with tokenizer_config.json, or
/// spiece.model. OpenCLIP needs none for CLIP's byte pairs. Empty if the model's tokenizer has no such files (wordpiece) or no
/// vocabulary.
std::map<std::string, std::string> published_tokenizer_files(const ModelFile& file, const std::string& library);

}  // namespace tessera
