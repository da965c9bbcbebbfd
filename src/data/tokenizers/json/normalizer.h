#pragma once

#include <functional>
#include <string>

#include <nlohmann/json.hpp>

namespace tessera::json_tokenizer {

/// The text between two added tokens.
struct Segment {
  std::string text;
  /// Number of leading bytes of `text` that come from the input's first character. `Metaspace` may treat these bytes specially.
  std::size_t head = 0;
};

/// A normalization step of a tokenizer.json, applied before texts are split. It changes the segment's text in place; `spare` is a buffer
/// that the caller keeps between calls. Thread-safe.
using Normalizer = std::function<void(Segment& segment, std::string& spare)>;

/// Reads the `normalizer` of a tokenizer.json; if it is null, returns a normalizer that changes nothing. Throws UserError
/// naming `origin` and the normalizer's type if it is not supported.
Normalizer make_normalizer(const nlohmann::json& json, const std::string& origin);

/// Makes a normalizer from SentencePiece's character map, which consists of a size, a double array, and zero-terminated texts.
Normalizer make_precompiled(const std::string& map, const std::string& origin);

}  // namespace tessera::json_tokenizer
