#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include <tessera/config/file_path.h>
#include <tessera/data/tokenizers/tokenizer.h>

namespace tessera {

/// The SentencePiece library's own encoding, with its begin and end tokens added on demand.
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
  v("context_length", s.context_length, "most ids, begin and end token included", config::at_least(1));
  v("add_bos", s.add_bos, "put the begin token first");
  v("add_eos", s.add_eos, "put the end token last; it stays when the text is cut");
  v("pad_id", s.pad_id, "id that fills up a batch; may be a real one, masks go by length", config::at_least(0));
  v("pad_is_text", s.pad_is_text, "whether the text tower sees padding as text (SigLIP): masks are true everywhere");
  v("cleanup", s.cleanup,
    "before the pieces: none, siglip (lower case, no punctuation: transformers) or canonicalize (OpenCLIP's for SigLIP, "
    "with ftfy's repairs)",
    config::one_of({"none", "siglip", "canonicalize"}));
}

/// Throws UserError if the file is missing, is not a SentencePiece model, or lacks a token the settings ask for.
std::shared_ptr<Tokenizer> make_sentencepiece(const SentencePieceSettings& settings, const TokenizerContext& context);

struct SentencePieceTraining {
  std::int64_t vocab_size = 0;
  std::string model_type = "unigram";  // or bpe
  double character_coverage = 1.0;     // share of the text's characters that get a piece of their own
};

/// Trains a model and returns its bytes; the same sentences give the same bytes. `next` fills in a sentence or returns
/// false at the end. Throws UserError if the corpus is empty or the vocabulary too large for it (naming the largest
/// possible).
std::string train_sentencepiece(const SentencePieceTraining& training, const std::function<bool(std::string&)>& next);

}  // namespace tessera
