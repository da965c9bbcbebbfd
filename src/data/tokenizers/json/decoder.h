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
  /// Changes the tokens in place, and may join tokens. The concatenation of the result is the text.
  virtual void decode(std::vector<std::string>& tokens) const = 0;
};

/// Reads the `decoder` of a tokenizer.json; if it is null, returns a decoder that puts spaces between tokens. Throws UserError
/// naming `origin` and the decoder's type if it is not supported.
std::shared_ptr<const Decoder> make_decoder(const nlohmann::json& json, const std::string& origin);

}  // namespace tessera::json_tokenizer
