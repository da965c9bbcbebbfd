#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace sentencepiece {
class SentencePieceProcessor;
}

namespace tessera {

/// A SentencePiece model. The SentencePiece library reads the file and knows the pieces. Only what its interface does not show is read
/// here.
struct SentencePieceModel {
  std::shared_ptr<const sentencepiece::SentencePieceProcessor> processor;
  std::string normalization;  // the normalizer's character map; empty if there is none
  bool is_unigram = true;
};

/// Reads a SentencePiece model. Throws UserError naming `origin` if the bytes are not one, or if has_sound_normalization() is false.
SentencePieceModel load_sentencepiece(const std::string& bytes, const std::string& origin);

/// Returns whether all offsets in a SentencePiece model's normalization tables stay inside the tables, which the SentencePiece library does
/// not check. For bytes that are not a model, returns true, because the library itself rejects such bytes.
bool has_sound_normalization(std::string_view model);

/// A node of a character map's double-array trie (as in the library Darts-clone).
struct TrieUnit {
  std::uint32_t bits;
  bool is_value() const { return bits >> 31 != 0; }
  bool has_value() const { return (bits >> 8 & 1) != 0; }
  std::uint32_t value() const { return bits & 0x7FFF'FFFF; }
  std::uint32_t label() const { return bits & (1U << 31 | 0xFF); }
  std::uint64_t offset() const { return std::uint64_t{bits >> 10} << ((bits & 1U << 9) >> 6); }
};

}  // namespace tessera
