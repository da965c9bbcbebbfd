// Encodes captions of arbitrary bytes. The first byte selects the tokenizer; the rest is the text.
#include <vector>

#include "src/data/tokenizers/engine_tokenizers.h"
#include "src/data/tokenizers/sentencepiece.h"
#include "tests/fuzz/target.h"
#include "tests/fuzz/tokenizers.h"

namespace tessera::fuzz {
namespace {

std::vector<std::shared_ptr<Tokenizer>> all_tokenizers() {
  std::vector<std::shared_ptr<Tokenizer>> out;
  for (const char* cleanup : {"none", "basic", "mojibake", "full"})
    for (const std::int64_t length : {77, 2}) out.push_back(make_clip_bpe({clip_merges, length, cleanup}, {}));
  for (const bool lower_case : {true, false}) out.push_back(make_wordpiece({wordpiece_vocab, 76, lower_case}, {}));
  for (const char* model : {"vocabulary/unigram.model", "vocabulary/bpe.model"})
    out.push_back(make_sentencepiece({.context_length = 55, .add_bos = true}, {corpus_file(model).substr(1)}));
  return out;
}

}  // namespace

void fuzz_tokenizer(std::string_view input) {
  static const std::vector<std::shared_ptr<Tokenizer>> tokenizers = all_tokenizers();
  if (input.empty()) return;
  const auto which = static_cast<unsigned char>(input[0]) % tokenizers.size();
  check_encoding(*tokenizers[which], input.substr(1));
}

}  // namespace tessera::fuzz
