#pragma once

#include <memory>
#include <optional>
#include <string>

#include <tessera/config/file_path.h>
#include <tessera/data/tokenizers/tokenizer.h>
#include <tessera/models/foreign/foreign_model.h>

namespace tessera {

/// A tokenizer.json as Hugging Face's tokenizers library writes it: byte pairs, byte-level (GPT-2, CLIP) or with bytes for
/// what the vocabulary lacks (Gemma, so SigLIP 2).
struct TokenizerJsonSettings {
  config::FilePath model{};
  std::int64_t context_length = 64;
  std::int64_t pad_id = 0;
  bool pad_is_text = false;
  std::string cleanup = "none";
};

template <class Visitor>
void fields(Visitor& v, TokenizerJsonSettings& s) {
  v("model", s.model, "path of tokenizer.json");
  v("context_length", s.context_length, "most ids, special tokens included", config::at_least(1));
  v("pad_id", s.pad_id, "id that fills up a batch", config::at_least(0));
  v("pad_is_text", s.pad_is_text, "whether the text tower sees padding as text (SigLIP): masks are true everywhere");
  v("cleanup", s.cleanup,
    "what OpenCLIP does before such a tokenizer: none, whitespace, lower or canonicalize (no punctuation, lower case); "
    "all but none repair text by ftfy's rules first",
    config::one_of({"none", "whitespace", "lower", "canonicalize"}));
}

/// Throws UserError if the file is missing or damaged, or asks for something that is not known here; the part is named.
std::shared_ptr<Tokenizer> make_tokenizer_json(const TokenizerJsonSettings& settings, const TokenizerContext& context);

struct FolderTokenizer {
  config::ModuleSettings settings;  // without the vocabulary's path
  std::string file;                 // that path
  std::string vocabulary;           // its bytes
};

/// The tokenizer of a published folder whose model `foreign` describes, for its texts: tokenizer.json, or spiece.model with
/// SigLIP's own cleaning; padding as tokenizer_config.json says. None where the model has no text tower or reads CLIP's
/// own vocabulary. Throws UserError where neither file is there.
std::optional<FolderTokenizer> tokenizer_of_folder(const ForeignModel& foreign, const std::string& folder);

}  // namespace tessera
