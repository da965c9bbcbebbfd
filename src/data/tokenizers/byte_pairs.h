#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/data/tokenizers/word_table.h"

namespace tessera {

/// Returns the 256 bytes in the order of CLIP's vocabulary: first the printable bytes, which represent themselves, then the others,
/// which the vocabulary writes as U+0100 and up.
std::vector<std::uint8_t> bytes_in_order();

/// CLIP's byte pair encoding. There is an id for each of the 256 bytes, for each byte at the end of a word, for each merge, and
/// for each of the two special tokens. Immutable.
class BytePairs {
 public:
  static constexpr std::int64_t merge_count = 48'894;
  static constexpr std::int64_t start_id = 49'406;
  static constexpr std::int64_t end_id = 49'407;
  static constexpr std::int64_t vocab_size = 49'408;

  /// `merges` is the text of the merges file, which has a header line and then one pair per line. `origin` is the file's name
  /// in errors.
  BytePairs(std::string_view merges, const std::string& origin);

  /// Appends the ids of a piece, given as UTF-8 bytes.
  void encode(std::string_view piece, std::vector<std::int64_t>& out) const;

  /// Returns the bytes of the token with this id. If the token ends a word (</w>), its bytes end in a space.
  const std::string& bytes(std::int64_t id) const { return bytes_[static_cast<std::size_t>(id)]; }

 private:
  // Packs two ids below 65,536 into one number.
  static std::uint32_t pair_of(std::int32_t left, std::int32_t right) {
    return static_cast<std::uint32_t>(left) << 16 | static_cast<std::uint32_t>(right);
  }
  struct Merge {
    std::uint32_t pair = 0;
    std::int32_t rank = no_rank;
  };
  static constexpr std::int32_t no_rank = merge_count;
  static constexpr std::size_t slots = 1 << 17;

  std::size_t slot_of(std::uint32_t pair) const;
  std::int32_t rank_of(std::int32_t left, std::int32_t right) const;
  void merge(std::string_view piece, std::vector<std::int64_t>& out) const;
  void merge_short(std::string_view piece, std::vector<std::int64_t>& out) const;
  void merge_long(std::string_view piece, std::vector<std::int64_t>& out) const;
  void read_words();

  std::array<std::int32_t, 256> inner_{};  // byte -> id
  std::array<std::int32_t, 256> last_{};   // byte at the end of a word -> id
  std::vector<Merge> table_;               // hash table with open addressing
  std::vector<std::int32_t> merged_;       // rank -> id
  std::vector<std::string> bytes_;
  WordTable words_;  // words that the merges turn into a single id
};

}  // namespace tessera
