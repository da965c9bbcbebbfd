#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace tessera::json_tokenizer {

/// A part of the string Pieces::text. No piece is empty.
struct Piece {
  std::size_t begin, end;
  std::size_t head;  // number of leading bytes of the piece that come from the first character of the tokenizer's input

  /// Returns the part of the piece between `from` and `to`, counted in bytes from the piece's start.
  Piece part(std::size_t from, std::size_t to) const { return {begin + from, begin + to, head - std::min(head, from)}; }
};

/// The text of a segment, and the pieces that it was split into, from left to right. Bytes between pieces are ignored.
struct Pieces {
  std::string text;
  std::vector<Piece> pieces;
  std::string_view of(const Piece& piece) const { return std::string_view(text).substr(piece.begin, piece.end - piece.begin); }
};

/// A step that splits pieces into smaller ones, in place. `spare` is a buffer that the caller keeps between calls. Thread-safe.
using PreTokenizer = std::function<void(Pieces& pieces, Pieces& spare)>;

struct Splitting {
  PreTokenizer split;
  bool bytes = false;  // whether pieces are raw bytes; if so, the file writes each byte b of a token as character_of_byte(b)
};

/// Reads the `pre_tokenizer` of a tokenizer.json; if it is null, returns one that splits nothing. `may_be_bytes` is true if the
/// model can read bytes. Throws UserError naming `origin` and the pre-tokenizer's type if it is not supported.
Splitting make_pre_tokenizer(const nlohmann::json& json, bool may_be_bytes, const std::string& origin);

}  // namespace tessera::json_tokenizer
