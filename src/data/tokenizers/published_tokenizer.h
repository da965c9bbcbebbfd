#pragma once

#include <map>
#include <string>

#include "src/models/foreign/foreign_model.h"

namespace tessera {

/// Copies a tokenizer into a model file: the tokenizer of `folder`, the published folder that the model's weights came from. Does nothing
/// if the model uses CLIP's tokenizer, which the file already has. If the folder's tokenizer cannot be read, leaves the file without a
/// tokenizer and returns the reason; otherwise returns an empty text.
std::string take_published_tokenizer(const ForeignModel& foreign, const std::string& folder, ModelFile& file);

/// Returns the files with which another library can tokenize texts for this model: tokenizer_config.json, and tokenizer.json or
/// spiece.model. The result is empty for CLIP's byte pairs if the library is OpenCLIP, which needs no files. It is also empty if the
/// model's tokenizer has no such files (wordpiece) or no vocabulary.
std::map<std::string, std::string> published_tokenizer_files(const ModelFile& file, const std::string& library);

}  // namespace tessera
