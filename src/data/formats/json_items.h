#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include <nlohmann/json.hpp>

namespace tessera {

/// One item of a list in a JSON file, with its place in the file for messages.
class JsonItem {
 public:
  JsonItem(const nlohmann::json& json, std::string place) : json_(json), place_(std::move(place)) {}

  /// These functions return a member of the item. They throw UserError "FILE: images[3]: ..." if it is missing or has another type.
  std::string text(const char* name) const { return member(name, "a text", &nlohmann::json::is_string); }
  std::int64_t number(const char* name) const { return member(name, "a whole number", &nlohmann::json::is_number_integer); }
  bool flag(const char* name) const { return member(name, "true or false", &nlohmann::json::is_boolean); }
  const nlohmann::json& list(const char* name) const { return member(name, "a list", &nlohmann::json::is_array); }
  /// Returns the member's text, or an empty text if the member is missing or null.
  std::string text_or_empty(const char* name) const { return json_.value(name, nlohmann::json()).is_null() ? std::string() : text(name); }
  const std::string& place() const { return place_; }

 private:
  const nlohmann::json& member(const char* name, const char* expected, bool (nlohmann::json::*is_right)() const noexcept) const;
  const nlohmann::json& json_;
  std::string place_;
};

using JsonItemReader = std::function<void(const JsonItem&)>;

/// Parses a file {"NAME": [{...}, ...], ...} in one pass and hands the items of the named lists to their readers, in the
/// file's order, without keeping them. Throws UserError if the file is missing, is not JSON (naming the line) or lacks a list.
void for_each_item(const std::string& path, const std::map<std::string, JsonItemReader>& readers);

}  // namespace tessera
