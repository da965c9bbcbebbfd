#include "tests/fuzz/tokenizers.h"

#include "tests/fuzz/target.h"
#include <tessera/base/text.h>
#include <tessera/io/atomic_file.h>

namespace tessera::fuzz {

void check_encoding(const Tokenizer& tokenizer, std::string_view text) {
  const std::vector<std::int64_t> ids = tokenizer.encode(text);
  require(!ids.empty() && static_cast<std::int64_t>(ids.size()) <= tokenizer.context_length(),
          "tokenizer: wrong number of ids");
  for (const std::int64_t id : ids)
    require(id >= 0 && id < tokenizer.vocab_size(), "tokenizer: an id outside the vocabulary");
  const std::vector<std::int64_t> of_nothing = tokenizer.encode("");
  require(ids.back() == of_nothing.back(), "tokenizer: the end token is not last");
  if (of_nothing.size() == 2 && ids.size() > 1)
    require(ids.front() == of_nothing.front(), "tokenizer: the start token is not first");
  require(tokenizer.encode(repair_utf8(text)) == ids, "tokenizer: bytes that are not UTF-8 are not U+FFFD");
  tokenizer.decode(ids);
}

std::string corpus_file(const std::string& name) {
  return io::read_file(TESSERA_SOURCE_DIR "/tests/fuzz/corpus/" + name);
}

}  // namespace tessera::fuzz
