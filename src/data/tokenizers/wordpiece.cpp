#include "src/data/tokenizers/wordpiece.h"

#include <algorithm>
#include <vector>

#include "src/data/tokenizers/engine_tokenizer.h"
#include "src/data/tokenizers/json/assembled.h"
#include "src/data/tokenizers/tokenizer_config.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>

namespace tessera {
namespace {

/// Returns the lines of a vocab.txt. A line that is not UTF-8 keeps its id, but U+FFFD makes it a piece that no cleaned text contains.
std::vector<std::string> read_pieces(const Vocabulary& vocabulary) {
  std::vector<std::string> pieces = split_lines(vocabulary.bytes);
  for (const char* special : {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"})
    if (std::find(pieces.begin(), pieces.end(), special) == pieces.end())
      user_error(vocabulary.origin, ": has no ", special, " among its ", pieces.size(),
                 " lines; expected BERT's vocab.txt, one piece per line");
  for (std::string& piece : pieces)
    if (!is_utf8(piece)) piece = repair_utf8(piece);
  return pieces;
}

}  // namespace

std::shared_ptr<Tokenizer> make_wordpiece(const WordPieceSettings& settings, const TokenizerContext& context) {
  Vocabulary vocabulary = load_vocabulary("wordpiece", "vocab", settings.vocab, context);
  const TokenizerConfig config(nlohmann::json{{"do_lower_case", settings.lower_case}});
  nlohmann::json rules = json_tokenizer::of_word_pieces(read_pieces(vocabulary), config, vocabulary.origin);
  rules["decoder"]["cleanup"] = false;
  rules["decoder"]["strips_first"] = true;
  EngineSettings engine{.name = "wordpiece", .context_length = settings.context_length, .clean = repaired_utf8};
  engine.pad_id = rules["model"]["vocab"]["[PAD]"].get<std::int64_t>();
  return std::make_shared<EngineTokenizer>(std::move(engine), std::move(vocabulary), rules);
}

}  // namespace tessera
