#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

/// Returns whether all offsets in a SentencePiece model's normalization tables stay inside the tables, which the SentencePiece library does
/// not check. For bytes that are not a model, returns true, because the library itself rejects such bytes.
bool has_sound_normalization(std::string_view model);

/// The parts of a SentencePiece model file.
struct SentencePieceParts {
  struct Piece {
    std::string text;
    float score = 0;
    std::uint64_t type = 1;  // 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte
  };
  std::vector<Piece> pieces;
  std::string normalization;     // the character map; empty if there is none
  std::uint64_t model_type = 1;  // 1 unigram, 2 BPE
};

/// A node of a character map's double-array trie (as in the library Darts-clone).
struct TrieUnit {
  std::uint32_t bits;
  bool is_value() const { return bits >> 31 != 0; }
  bool has_value() const { return (bits >> 8 & 1) != 0; }
  std::uint32_t value() const { return bits & 0x7FFF'FFFF; }
  std::uint32_t label() const { return bits & (1U << 31 | 0xFF); }
  std::uint64_t offset() const { return std::uint64_t{bits >> 10} << ((bits & 1U << 9) >> 6); }
};

/// Parses a SentencePiece model; returns nullopt if the bytes are not one.
std::optional<SentencePieceParts> read_sentencepiece(std::string_view model);

}  // namespace tessera
