#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

/// False if the tables of a SentencePiece model's normalization point outside of themselves: the library follows them
/// unchecked. True for what is no model at all, which the library refuses by itself.
bool has_sound_normalization(std::string_view model);

/// A SentencePiece model's parts, as its file has them.
struct SentencePieceParts {
  struct Piece {
    std::string text;
    float score = 0;
    std::uint64_t type = 1;  // 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte
  };
  std::vector<Piece> pieces;
  std::string normalization;     // the map of characters; empty: none
  std::uint64_t model_type = 1;  // 1 unigram, 2 BPE
};

/// None if the bytes are no such model.
std::optional<SentencePieceParts> read_sentencepiece(std::string_view model);

}  // namespace tessera
