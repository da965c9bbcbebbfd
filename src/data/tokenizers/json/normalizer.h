#pragma once

#include <memory>
#include <string>

#include <nlohmann/json.hpp>

namespace tessera::json_tokenizer {

/// A part of a text that holds no added token.
struct Segment {
  std::string text;
  /// How many bytes at its beginning stem from the first character of the whole text: `Metaspace` may treat them specially.
  std::size_t head = 0;
};

/// One step that a tokenizer.json asks for before texts are split. Thread-safe.
class Normalizer {
 public:
  virtual ~Normalizer() = default;
  /// Changes the segment's text in place; `spare` is room that a caller keeps from one call to the next.
  virtual void apply(Segment& segment, std::string& spare) const = 0;
};

/// Reads the file's `normalizer`; null gives one that changes nothing. Throws UserError naming `origin` and the type, for
/// those that are not known here.
std::shared_ptr<const Normalizer> make_normalizer(const nlohmann::json& json, const std::string& origin);

/// SentencePiece's map of characters: a size, a double array, and texts that end in zero.
std::shared_ptr<const Normalizer> make_precompiled(const std::string& map, const std::string& origin);

}  // namespace tessera::json_tokenizer
