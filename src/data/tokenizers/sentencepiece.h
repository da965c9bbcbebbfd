#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include <tessera/config/file_path.h>
#include <tessera/data/tokenizers/tokenizer.h>

namespace tessera {

/// The SentencePiece library's own encoding, optionally with its begin and end tokens.
struct SentencePieceSettings {
  config::FilePath model{};
  std::int64_t context_length = 55;
  bool add_bos = false;
  bool add_eos = true;
  std::int64_t pad_id = 0;
  bool pad_is_text = false;
  std::string cleanup = "none";
};

template <class Visitor>
void fields(Visitor& v, SentencePieceSettings& s) {
  v("model", s.model, "path of the SentencePiece model (tessera-data train-sentencepiece makes one)");
  v("context_length", s.context_length, "maximum number of ids, including begin and end token", config::at_least(1));
  v("add_bos", s.add_bos, "put the begin token first");
  v("add_eos", s.add_eos, "put the end token last; it is kept when the text is cut");
  v("pad_id", s.pad_id, "padding id; it may also be the id of a token, because masks depend on the text's length", config::at_least(0));
  v("pad_is_text", s.pad_is_text, "whether the text tower treats padding as text (SigLIP): masks are true everywhere");
  v("cleanup", s.cleanup,
    "text cleanup before tokenization: none, siglip (lower case, no punctuation, as in transformers), siglip_cased (only no "
    "punctuation) or canonicalize (OpenCLIP's cleanup for SigLIP, with ftfy's repairs)",
    config::one_of({"none", "siglip", "siglip_cased", "canonicalize"}));
}

/// Throws UserError if the file is missing, is not a SentencePiece model, or lacks a token that the settings require.
std::shared_ptr<Tokenizer> make_sentencepiece(const SentencePieceSettings& settings, const TokenizerContext& context);

struct SentencePieceTraining {
  std::int64_t vocab_size = 0;
  std::string model_type = "unigram";  // or bpe
  double character_coverage = 1.0;     // share of the text's characters that get a piece of their own
};

/// Trains a model and returns its bytes; the same sentences produce the same bytes. `next` fills in a sentence or returns
/// false at the end. Throws UserError if the corpus is empty, or if the vocabulary is too large for it (naming the largest
/// possible size).
std::string train_sentencepiece(const SentencePieceTraining& training, const std::function<bool(std::string&)>& next);

}  // namespace tessera
