#pragma once

#include <map>
#include <string>

#include <tessera/models/foreign/foreign_model.h>

namespace tessera {

/// Gives a model file the tokenizer of the published folder that its weights came from. Returns why its texts cannot be read here,
/// and leaves the file without one then; empty: they can, or CLIP's own tokenizer, which the file has already, reads them.
std::string take_published_tokenizer(const ForeignModel& foreign, const std::string& folder, ModelFile& file);

/// The files by which another library reads a model's texts: tokenizer.json with tokenizer_config.json, or spiece.model. OpenCLIP
/// needs none for CLIP's byte pairs. Empty where the model's tokenizer has no such files (wordpiece) or no vocabulary.
std::map<std::string, std::string> published_tokenizer_files(const ModelFile& file, const std::string& library);

}  // namespace tessera
