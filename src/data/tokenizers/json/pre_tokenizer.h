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
  std::size_t head;  // bytes at its beginning that stem from the first character of the whole text

  /// The bytes begin..end-1 of the piece's own.
  Piece part(std::size_t from, std::size_t to) const { return {begin + from, begin + to, head - std::min(head, from)}; }
};

/// A segment's text, and what it was split into, from left to right. Bytes between pieces belong to none.
struct Pieces {
  std::string text;
  std::vector<Piece> pieces;
  std::string_view of(const Piece& piece) const { return std::string_view(text).substr(piece.begin, piece.end - piece.begin); }
};

/// A step that splits pieces into smaller ones. Thread-safe.
class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  /// `spare` is room that a caller keeps from one call to the next.
  virtual void split(Pieces& pieces, Pieces& spare) const = 0;
};

struct Splitting {
  std::shared_ptr<const PreTokenizer> pre_tokenizer;
  bool bytes = false;  // the pieces are bytes, for which the model's tokens have the characters of byte-level tokenizers
};

/// Reads the file's `pre_tokenizer`; null gives one that splits nothing. `may_be_bytes` says whether the model reads bytes. Throws UserError naming `origin` and the type, for
/// those that are not known here.
Splitting make_pre_tokenizer(const nlohmann::json& json, bool may_be_bytes, const std::string& origin);

}  // namespace tessera::json_tokenizer
