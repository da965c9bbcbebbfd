#pragma once

#include <memory>
#include <optional>
#include <string>

#include <tessera/config/file_path.h>
#include <tessera/data/tokenizers/tokenizer.h>
#include <tessera/models/foreign/foreign_model.h>

namespace tessera {

/// A tokenizer.json as Hugging Face's tokenizers library writes it: byte pairs (GPT-2, CLIP, Llama, Gemma), WordPiece (BERT),
/// Unigram (XLM-RoBERTa, T5) or WordLevel. Ids are those of the library.
struct TokenizerJsonSettings {
  config::FilePath model{};
  std::int64_t context_length = 64;
  std::int64_t pad_id = 0;
  bool pad_is_text = false;
  std::string cleanup = "none";
  std::int64_t zero_id = -1;
};

template <class Visitor>
void fields(Visitor& v, TokenizerJsonSettings& s) {
  v("model", s.model,
    "path of tokenizer.json; or of vocab.json, with merges.txt beside it, vocab.txt or a SentencePiece model, of which a "
    "tokenizer.json is made as transformers makes one");
  v("context_length", s.context_length, "most ids, special tokens included", config::at_least(1));
  v("pad_id", s.pad_id, "id that fills up a batch", config::at_least(0));
  v("pad_is_text", s.pad_is_text, "whether the text tower sees padding as text (SigLIP): masks are true everywhere");
  v("cleanup", s.cleanup,
    "what OpenCLIP does before such a tokenizer: none, whitespace, lower or canonicalize (no punctuation, lower case); "
    "all but none repair text by ftfy's rules first",
    config::one_of({"none", "whitespace", "lower", "canonicalize"}));
  v("zero_id", s.zero_id, "the id that becomes 0 (OpenCLIP's strip_sep_token, for the separator of CLIPA's tokenizer); -1: none",
    config::at_least(-1));
}

/// Throws UserError if the file is missing or damaged, or asks for something that is not known here; the part is named.
std::shared_ptr<Tokenizer> make_tokenizer_json(const TokenizerJsonSettings& settings, const TokenizerContext& context);

struct FolderTokenizer {
  config::ModuleSettings settings;  // without the vocabulary's path
  std::string file;                 // that path
  std::string vocabulary;           // its bytes
};

/// The tokenizer of a published folder whose model `foreign` describes, for its texts: tokenizer.json, or the first of
/// vocab.json with merges.txt, vocab.txt, sentencepiece.bpe.model, spiece.model (with SigLIP's own cleaning where the model is
/// SigLIP's) and tokenizer.model; padding as tokenizer_config.json says. None where the model has no text tower or reads
/// CLIP's own vocabulary. Throws UserError where no such file is there.
std::optional<FolderTokenizer> tokenizer_of_folder(const ForeignModel& foreign, const std::string& folder);

}  // namespace tessera
