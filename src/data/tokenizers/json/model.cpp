#include "src/data/tokenizers/json/model.h"

#include <algorithm>
#include <atomic>

#include "src/data/tokenizers/json/characters.h"
#include "src/data/tokenizers/json/part.h"
#include "src/data/tokenizers/json/word_cache.h"
#include <tessera/base/error.h>

namespace tessera::json_tokenizer {

std::uint32_t next_cache_owner() {
  static std::atomic<std::uint32_t> last = 0;
  return ++last;
}

std::string byte_token(std::uint8_t byte) {
  constexpr std::string_view digits = "0123456789ABCDEF";
  return std::string("<0x") + digits[byte >> 4] + digits[byte & 15] + ">";
}

void allow_members(const nlohmann::json& model, std::initializer_list<std::string_view> keys, const std::string& origin) {
  for (const auto& [key, value] : model.items())
    if (key != "type" && std::find(keys.begin(), keys.end(), key) == keys.end())
      user_error(origin, ": its model's ", shown(key), " is not supported");
}

std::string text_member(const nlohmann::json& model, const char* key, const std::string& otherwise, const std::string& origin) {
  if (!model.contains(key) || model.at(key).is_null()) return otherwise;
  if (!model.at(key).is_string()) user_error(origin, ": its model's ", key, " is not a text");
  return model.at(key).get<std::string>();
}

bool flag_member(const nlohmann::json& model, const char* key, const std::string& origin) {
  if (!model.contains(key) || model.at(key).is_null()) return false;
  if (!model.at(key).is_boolean()) user_error(origin, ": its model's ", key, " is neither true nor false");
  return model.at(key).get<bool>();
}

Tokens read_vocabulary(const nlohmann::json& model, const std::string& origin) {
  constexpr std::int64_t most = 1 << 24;
  if (!model.contains("vocab") || !model.at("vocab").is_object()) user_error(origin, ": its model has no vocab: the file is damaged");
  Tokens out;
  out.ids.reserve(model.at("vocab").size());
  for (const auto& [token, id] : model.at("vocab").items()) {
    if (!id.is_number_integer()) user_error(origin, ": the id of the token ", shown(token), " is not a number");
    const auto value = id.get<std::int64_t>();
    if (value < 0 || value >= most) user_error(origin, ": the token ", shown(token), " has the id ", value);
    out.ids.emplace(token, static_cast<std::int32_t>(value));
  }
  out.count = out.ids.size();
  return out;
}

namespace {

// Files of old versions do not name the type of their model.
std::string type_of(const nlohmann::json& model, const std::string& origin) {
  if (model.contains("type")) return text_member(model, "type", "", origin);
  if (model.contains("merges")) return "BPE";
  if (model.contains("max_input_chars_per_word")) return "WordPiece";
  return model.contains("vocab") && model.at("vocab").is_array() ? "Unigram" : "WordLevel";
}

}  // namespace

bool reads_bytes(const nlohmann::json& json) {
  return json.is_object() && (json.contains("type") ? json.at("type") == "BPE" : json.contains("merges"));
}

ModelPart make_model(const nlohmann::json& json, bool bytes, const std::string& origin) {
  if (!json.is_object()) user_error(origin, ": has no model, so it is not a tokenizer.json");
  const std::string type = type_of(json, origin);
  if (type == "BPE") return make_bpe(json, bytes, origin);
  if (type == "WordPiece") return make_word_piece(json, origin);
  if (type == "Unigram") return make_unigram(json, origin);
  if (type == "WordLevel") return make_word_level(json, origin);
  user_error(origin, ": its model ", shown(type), " is not supported (docs/pretrained.md)");
}

}  // namespace tessera::json_tokenizer
