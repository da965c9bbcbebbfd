#pragma once

#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace tessera::json_tokenizer {

/// Converts tokens back to text. Thread-safe.
class Decoder {
 public:
  virtual ~Decoder() = default;
  /// Changes the tokens in place, and may join them; their concatenation is the text.
  virtual void decode(std::vector<std::string>& tokens) const = 0;
};

/// Reads the file's `decoder`; for null returns one that puts spaces between tokens. Throws UserError naming `origin` and the
/// type if it is not supported.
std::shared_ptr<const Decoder> make_decoder(const nlohmann::json& json, const std::string& origin);

}  // namespace tessera::json_tokenizer
