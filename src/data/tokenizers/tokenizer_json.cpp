#include <algorithm>

#include "src/data/tokenizers/caption_cleanup.h"
#include "src/data/tokenizers/engine_tokenizer.h"
#include "src/data/tokenizers/json/assembled.h"
#include "src/data/tokenizers/tokenizer_config.h"
#include "src/data/tokenizers/tokenizer_json.h"
#include <tessera/base/error.h>

namespace tessera {
namespace {

using nlohmann::json;

/// Throws UserError if the special tokens leave no room for text.
void check_room(std::int64_t context_length, const json_tokenizer::Pipeline& pipeline, const std::string& origin) {
  const std::size_t special = pipeline.ends().size(), room = std::min(static_cast<std::size_t>(context_length), pipeline.longest());
  if (room <= special) user_error(origin, ": context_length ", room, " leaves no room for text next to ", special, " special tokens");
}

EngineSettings engine_settings(const TokenizerJsonSettings& settings) {
  EngineSettings out{"tokenizer_json", settings.context_length, settings.pad_id, settings.pad_is_text, settings.zero_id, repaired_utf8};
  if (settings.cleanup != "none")
    out.clean = [cleanup = settings.cleanup](std::string_view text, std::string& room) -> std::string_view {
      return room = cleaned_caption(repaired_utf8(text, room), cleanup);
    };
  return out;
}

}  // namespace

std::shared_ptr<Tokenizer> make_tokenizer_json(const TokenizerJsonSettings& settings, const TokenizerContext& context) {
  const bool from_file = context.vocabulary.empty() && !settings.model.empty();
  Vocabulary vocabulary = load_vocabulary("tokenizer_json", "model", settings.model, context);
  const std::string origin = vocabulary.origin;
  try {
    if (from_file) vocabulary.bytes = json_tokenizer::assembled(settings.model.name, std::move(vocabulary.bytes));
    const json file = parse_json_object(vocabulary.bytes, origin);
    auto tokenizer = std::make_shared<EngineTokenizer>(engine_settings(settings), std::move(vocabulary), file);
    check_room(settings.context_length, tokenizer->pipeline(), origin);
    return tokenizer;
  } catch (const json::exception& error) {
    user_error(origin, ": is not a tokenizer.json, or is damaged: ", error.what());
  }
}

}  // namespace tessera
