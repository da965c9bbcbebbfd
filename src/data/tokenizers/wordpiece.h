#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <tessera/config/file_path.h>
#include <tessera/data/tokenizers/tokenizer.h>

namespace tessera {

/// BERT's word pieces, with the ids of Hugging Face's BertTokenizer (the Rust engine): [CLS], pieces, [SEP].
struct WordPieceSettings {
  config::FilePath vocab;
  std::int64_t context_length = 76;
  bool lower_case = true;
};

template <class Visitor>
void fields(Visitor& v, WordPieceSettings& s) {
  v("vocab", s.vocab, "path of vocab.txt, one piece per line");
  v("context_length", s.context_length, "maximum number of ids, including [CLS] and [SEP]", config::at_least(2));
  v("lower_case", s.lower_case, "lower-case and remove accents (uncased BERT)");
}

/// Throws UserError if the file is missing or lacks one of [PAD], [UNK], [CLS], [SEP], [MASK].
std::shared_ptr<Tokenizer> make_wordpiece(const WordPieceSettings& settings, const TokenizerContext& context);

}  // namespace tessera
