// Reads vocabulary files. The first byte selects the tokenizer; the rest is the file.
#include <cstdint>

#include "src/data/tokenizers/engine_tokenizers.h"
#include "src/data/tokenizers/sentencepiece.h"
#include "src/data/tokenizers/vocabulary_file.h"
#include "tests/fuzz/target.h"
#include "tests/fuzz/tokenizers.h"
#include <tessera/base/error.h>
#include <tessera/io/atomic_file.h>

namespace tessera::fuzz {
namespace {

// Returns CLIP's merges with `lines` inserted near the end. Files with fewer merges would be rejected early.
std::string spliced_merges(std::string_view lines) {
  static const std::string whole = decompressed({io::read_file(clip_merges), clip_merges});
  constexpr std::size_t kept = 48'000;
  static const std::size_t place = [] {
    std::size_t at = 0;
    for (std::size_t line = 0; line < kept; ++line) at = whole.find('\n', at) + 1;
    return at;
  }();
  return whole.substr(0, place) + std::string(lines) + "\n" + whole.substr(place);
}

std::shared_ptr<Tokenizer> make(char kind, std::string_view file) {
  const TokenizerContext context{std::string(file)};
  switch (kind) {
    case 'c':
      return make_clip_bpe({}, context);
    case 's':
      return make_sentencepiece({.add_eos = false}, context);
    case 'S':
      return make_sentencepiece({}, context);
    case 'm':
      return make_clip_bpe({}, {spliced_merges(file)});
    default:
      return make_wordpiece({}, context);
  }
}

}  // namespace

void fuzz_vocabulary(std::string_view input) {
  if (input.size() < 2) return;
  allowing<UserError>([&] {
    const std::shared_ptr<Tokenizer> tokenizer = make(input[0], input.substr(1));
    for (const std::int64_t id : tokenizer->encode("A photo of 2 cats, [CLS] \xC3\xA9t\xC3\xA9 \xE4\xB8\xAD"))
      require(id >= 0 && id < tokenizer->vocab_size(), "vocabulary: an id outside of it");
    if (tokenizer->vocab_size() > 0) tokenizer->decode({0, tokenizer->vocab_size() - 1});
  });
}

}  // namespace tessera::fuzz
