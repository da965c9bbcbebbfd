#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace tessera::json_tokenizer {

/// A part of Pieces' text; no piece is empty.
struct Piece {
  std::size_t begin, end;
  std::size_t head;  // bytes at its start that come from the first character of the whole text

  /// Returns the part of the piece between its own bytes `from` and `to`.
  Piece part(std::size_t from, std::size_t to) const { return {begin + from, begin + to, head - std::min(head, from)}; }
};

/// A segment's text, and the pieces that it was split into, from left to right. Bytes between pieces are dropped.
struct Pieces {
  std::string text;
  std::vector<Piece> pieces;
  std::string_view of(const Piece& piece) const { return std::string_view(text).substr(piece.begin, piece.end - piece.begin); }
};

/// A step that splits pieces into smaller ones. Thread-safe.
class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  /// `spare` is a buffer that the caller keeps between calls.
  virtual void split(Pieces& pieces, Pieces& spare) const = 0;
};

struct Splitting {
  std::shared_ptr<const PreTokenizer> pre_tokenizer;
  bool bytes = false;  // pieces are bytes, which the model's tokens write as the characters of byte-level tokenizers
};

/// Reads the file's `pre_tokenizer`; for null returns one that splits nothing. `may_be_bytes`: whether the model can read bytes.
/// Throws UserError naming `origin` and the type if it is not supported.
Splitting make_pre_tokenizer(const nlohmann::json& json, bool may_be_bytes, const std::string& origin);

}  // namespace tessera::json_tokenizer
