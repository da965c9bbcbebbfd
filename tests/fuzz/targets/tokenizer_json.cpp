// Reads tokenizer.json files with any combination of parts. Either the tokenizer converts texts to ids of its vocabulary, or an error
// explains what is wrong with the file.
#include "src/data/tokenizers/engine_tokenizers.h"
#include "tests/fuzz/target.h"
#include <tessera/base/error.h>

namespace tessera::fuzz {
namespace {

void check_ids(const Tokenizer& tokenizer, std::string_view text) {
  const std::vector<std::int64_t> ids = tokenizer.encode(text);
  require(static_cast<std::int64_t>(ids.size()) <= tokenizer.context_length(), "tokenizer_json: more ids than context_length");
  for (const std::int64_t id : ids) require(id >= 0 && id < tokenizer.vocab_size(), "tokenizer_json: an id outside the vocabulary");
  require(tokenizer.encode(text) == ids, "tokenizer_json: the same text has different ids");
  tokenizer.decode(ids);
}

}  // namespace

void fuzz_tokenizer_json(std::string_view input) {
  if (input.empty()) return;
  allowing<UserError>([&] {
    const std::shared_ptr<Tokenizer> tokenizer = make_tokenizer_json({}, {std::string(input)});
    for (const std::string_view text : {"A photo of 2 cats, [CLS] it's\n  \xC3\xA9t\xC3\xA9 e\xCC\x81 \xE4\xB8\xAD\xF0\x9F\x90\x88", " a \xFF<mask> ", ""})
      check_ids(*tokenizer, text);
    if (tokenizer->vocab_size() > 0) tokenizer->decode({0, tokenizer->vocab_size() - 1});
  });
}

}  // namespace tessera::fuzz
