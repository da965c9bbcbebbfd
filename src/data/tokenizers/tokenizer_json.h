#pragma once

#include <memory>
#include <string>

#include <tessera/config/file_path.h>
#include <tessera/data/tokenizers/tokenizer.h>

namespace tessera {

/// A tokenizer.json as Hugging Face's tokenizers library writes it: byte pairs (GPT-2, CLIP, Llama, Gemma), WordPiece (BERT),
/// Unigram (XLM-RoBERTa, T5) or WordLevel. The ids are the library's.
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
    "path of tokenizer.json; or of vocab.json (with merges.txt next to it), vocab.txt or a SentencePiece model, which are "
    "converted to a tokenizer.json as transformers does");
  v("context_length", s.context_length, "maximum number of ids, including special tokens", config::at_least(1));
  v("pad_id", s.pad_id, "padding id", config::at_least(0));
  v("pad_is_text", s.pad_is_text, "whether the text tower treats padding as text (SigLIP): masks are true everywhere");
  v("cleanup", s.cleanup,
    "OpenCLIP's text cleanup before such a tokenizer: none, whitespace, lower or canonicalize (no punctuation, lower case); "
    "all except none repair the text by ftfy's rules first",
    config::one_of({"none", "whitespace", "lower", "canonicalize"}));
  v("zero_id", s.zero_id, "id to replace by 0 (OpenCLIP's strip_sep_token, for the separator of CLIPA's tokenizer); -1: none",
    config::at_least(-1));
}

/// Throws UserError if the file is missing or damaged, or if a part of it is not supported; the message names the part.
std::shared_ptr<Tokenizer> make_tokenizer_json(const TokenizerJsonSettings& settings, const TokenizerContext& context);

}  // namespace tessera
