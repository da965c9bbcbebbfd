#pragma once

#include <string>

#include <nlohmann/json.hpp>

namespace tessera {

/// Parses the text of a file that holds a JSON object. Throws UserError naming the file.
nlohmann::json parse_json_object(const std::string& text, const std::string& path);

/// The tokenizer_config.json of a published tokenizer's folder, if it has one.
class TokenizerConfig {
 public:
  explicit TokenizerConfig(const std::string& folder);
  /// Has the given members instead of those of a file.
  explicit TokenizerConfig(nlohmann::json values) : values_(std::move(values)) {}
  bool flag(const char* key, bool otherwise) const;
  /// Returns a token, which the file stores as a text or as an object that describes it.
  std::string token(const char* key, const std::string& otherwise) const;
  /// Returns the name of the tokenizer's class without "Fast", which the file or the config.json next to it determines; empty if neither
  /// does.
  std::string type() const;

 private:
  std::string path_, model_type_;
  nlohmann::json values_ = nlohmann::json::object();
};

}  // namespace tessera
