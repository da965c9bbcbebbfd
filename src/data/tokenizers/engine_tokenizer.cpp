#include "src/data/tokenizers/engine_tokenizer.h"

#include <algorithm>

#include "src/data/tokenizers/unicode.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>

namespace tessera {

EngineTokenizer::EngineTokenizer(EngineSettings settings, Vocabulary vocabulary, const nlohmann::json& file)
    : settings_(std::move(settings)), bytes_(std::move(vocabulary.bytes)), pipeline_(file, vocabulary.origin) {}

std::vector<std::int64_t> EngineTokenizer::encode(std::string_view text) const {
  thread_local std::string room;
  std::vector<std::int64_t> ids = pipeline_.encode(settings_.clean(text, room), static_cast<std::size_t>(settings_.context_length));
  if (settings_.zero_id >= 0) std::replace(ids.begin(), ids.end(), settings_.zero_id, std::int64_t{0});
  return ids;
}

std::int64_t EngineTokenizer::count_ids(std::string_view text) const {
  std::string room;
  return std::ssize(pipeline_.encode_whole(settings_.clean(text, room)));
}

std::string EngineTokenizer::decode(const std::vector<std::int64_t>& ids) const {
  for (const std::int64_t id : ids)
    if (id < 0 || id >= vocab_size()) user_error(settings_.name, ": id ", id, " is not in 0..", vocab_size() - 1);
  const std::vector<std::int64_t>& behind = pipeline_.ends().behind;
  const auto end = behind.empty() ? ids.end() : std::find(ids.begin(), ids.end(), behind.back());  // padding follows the end token
  return pipeline_.decode({ids.begin(), end});
}

std::string_view repaired_utf8(std::string_view text, std::string& room) {
  if (unicode::is_ascii(text) || is_utf8(text)) return text;
  return room = repair_utf8(text);
}

}  // namespace tessera
