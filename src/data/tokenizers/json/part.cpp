#include "src/data/tokenizers/json/part.h"

#include "src/data/tokenizers/json/characters.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>

namespace tessera::json_tokenizer {

std::string shown(const std::string& text) {
  constexpr std::size_t most = 80;
  std::string out = nlohmann::json(text).dump(-1, ' ', /*ensure_ascii=*/true);
  std::erase(out, '\x7F');
  return out.size() <= most ? out : out.substr(0, most) + "...";
}

Part::Part(const nlohmann::json& json, const char* what, const std::string& origin) : json_(json), what_(what), origin_(origin) {
  if (what_ == "model") return;
  if (!json.is_object() || !json.contains("type") || !json.at("type").is_string())
    user_error(origin, ": a ", what, " has no type: the file is damaged");
  type_ = json.at("type").get<std::string>();
}

std::string Part::name_of(std::string_view key) const {
  return what_ == "model" ? concat("its model's ", key) : concat(key, " of its ", what_, " ", type_);
}

void Part::allow(const Keys& keys) const {
  for (const auto& [key, value] : json_.items()) {
    if (key == "type" || contains(keys, key)) continue;
    const std::string name = what_ == "model" ? name_of(shown(key)) : concat(shown(key), " of its ", what_, " ", shown(type_));
    user_error(origin_, ": ", name, " is not supported");
  }
}

const nlohmann::json& Part::at(const char* key) const {
  if (!json_.contains(key)) user_error(origin_, ": its ", what_, " ", type_, " has no ", key, ": the file is damaged");
  return json_.at(key);
}

std::string Part::text(const char* key) const {
  const nlohmann::json& value = at(key);
  if (!value.is_string()) user_error(origin_, ": ", name_of(key), " is not a text");
  return value.get<std::string>();
}

std::string Part::character(const char* key) const {
  const std::string value = text(key);
  if (value.empty() || length_of(value[0]) != value.size()) user_error(origin_, ": ", name_of(key), " is not one character");
  return value;
}

bool Part::flag(const char* key, bool otherwise) const {
  if (!has(key)) return otherwise;
  if (!json_.at(key).is_boolean()) user_error(origin_, ": ", name_of(key), " is neither true nor false");
  return json_.at(key).get<bool>();
}

void Part::unknown() const {
  user_error(origin_, ": its ", what_, " ", shown(type_), " is not supported (docs/pretrained.md)");
}

void Part::refuse(const std::string& why) const {
  user_error(origin_, ": its ", what_, " ", type_, " ", why);
}

}  // namespace tessera::json_tokenizer
