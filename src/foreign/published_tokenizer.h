#pragma once

#include <map>
#include <optional>
#include <string>

#include "src/foreign/foreign_model.h"

namespace tessera {

struct FolderTokenizer {
  config::ModuleSettings settings;  // without the vocabulary's path
  std::string file;                 // the vocabulary's path
  std::string vocabulary;           // the vocabulary's bytes
};

/// Returns the tokenizer in the published folder of the model that `foreign` describes. It is read from the first of these files that
/// exists: tokenizer.json, vocab.json (with merges.txt), vocab.txt, sentencepiece.bpe.model, spiece.model (with SigLIP's own cleanup for
/// SigLIP models) and tokenizer.model. Padding is taken from tokenizer_config.json. Returns nullopt if the model has no text tower or uses
/// CLIP's own vocabulary. Throws UserError if none of these files exists.
std::optional<FolderTokenizer> tokenizer_of_folder(const ForeignModel& foreign, const std::string& folder);

/// Copies a tokenizer into a model file: the tokenizer of `folder`, the published folder that the model's weights came from. Does nothing
/// if the model uses CLIP's tokenizer, which the file already has. If the folder's tokenizer cannot be read, leaves the file without a
/// tokenizer and returns the reason; otherwise returns an empty text.
std::string take_published_tokenizer(const ForeignModel& foreign, const std::string& folder, ModelFile& file);

/// Returns the files with which another library can tokenize texts for this model: tokenizer_config.json, and tokenizer.json or
/// spiece.model. The result is empty for CLIP's byte pairs if the library is OpenCLIP, which needs no files. It is also empty if the
/// model's tokenizer has no such files (wordpiece, except for the library "tokenizers") or no vocabulary.
std::map<std::string, std::string> published_tokenizer_files(const ModelFile& file, const std::string& library);

}  // namespace tessera
