#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

/// Returns false if the normalization tables of a SentencePiece model point outside of themselves, which the library does not
/// check. Returns true for bytes that are not a model at all, which the library rejects itself.
bool has_sound_normalization(std::string_view model);

/// The parts of a SentencePiece model file.
struct SentencePieceParts {
  struct Piece {
    std::string text;
    float score = 0;
    std::uint64_t type = 1;  // 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte
  };
  std::vector<Piece> pieces;
  std::string normalization;     // the character map; empty: none
  std::uint64_t model_type = 1;  // 1 unigram, 2 BPE
};

/// Parses a SentencePiece model; returns nullopt if the bytes are not one.
std::optional<SentencePieceParts> read_sentencepiece(std::string_view model);

}  // namespace tessera
