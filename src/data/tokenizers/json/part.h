#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace tessera::json_tokenizer {

/// Formats a text from a file for error messages: in quotes, as ASCII, and shortened to a readable length.
std::string shown(const std::string& text);

/// A part of a tokenizer.json: an object with a `type`. All functions throw UserErrors that name the file and the part.
class Part {
 public:
  /// `what` is the name of the part: "normalizer", "pre_tokenizer", ... Throws if the object has no type.
  Part(const nlohmann::json& json, const char* what, const std::string& origin);

  const std::string& type() const { return type_; }
  /// Throws if the part has a member that is neither `type` nor in `keys`.
  void allow(std::initializer_list<std::string_view> keys) const;
  const nlohmann::json& at(const char* key) const;
  std::string text(const char* key) const;
  /// Returns a member that is a string of exactly one character.
  std::string character(const char* key) const;
  bool flag(const char* key, bool otherwise) const;
  bool has(const char* key) const { return json_.contains(key) && !json_.at(key).is_null(); }
  const std::string& origin() const { return origin_; }
  /// Throws an error that says that the part's type is not supported.
  [[noreturn]] void unknown() const;
  /// Throws an error that says what is wrong with the part.
  [[noreturn]] void refuse(const std::string& why) const;

 private:
  const nlohmann::json& json_;
  const char* what_;
  const std::string& origin_;
  std::string type_;
};

}  // namespace tessera::json_tokenizer
