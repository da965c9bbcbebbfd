#pragma once

#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace tessera::json_tokenizer {

/// What makes a text of tokens again. Thread-safe.
class Decoder {
 public:
  virtual ~Decoder() = default;
  /// Changes the tokens in place, joined or not; the text is what they are one after the other.
  virtual void decode(std::vector<std::string>& tokens) const = 0;
};

/// Reads the file's `decoder`; null gives one that puts spaces between tokens. Throws UserError naming `origin` and the type,
/// for those that are not known here.
std::shared_ptr<const Decoder> make_decoder(const nlohmann::json& json, const std::string& origin);

}  // namespace tessera::json_tokenizer
