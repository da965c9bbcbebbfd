#pragma once

#include <cstdint>
#include <vector>

namespace tessera::json_tokenizer {

/// Maps pairs of ids to the rank of their merge and the merged id. It is a hash table with open addressing, built once and then
/// only read.
class MergeTable {
 public:
  static constexpr std::int32_t no_rank = 0x7FFF'FFFF;
  struct Merge {
    std::uint64_t pair = 0;
    std::int32_t rank = no_rank;
    std::int32_t id = -1;
  };

  explicit MergeTable(std::size_t expected = 0);
  /// Inserts a merge. If a pair is inserted again, its last merge counts.
  void insert(std::int32_t left, std::int32_t right, std::int32_t rank, std::int32_t id);
  /// Returns the pair's merge, or a Merge with rank `no_rank` if the pair has no merge.
  const Merge& find(std::int32_t left, std::int32_t right) const { return slots_[index_of(pair_of(left, right))]; }

 private:
  static std::uint64_t pair_of(std::int32_t left, std::int32_t right) {
    return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 | static_cast<std::uint32_t>(right);
  }
  std::size_t index_of(std::uint64_t pair) const {
    std::size_t i = pair * 0x9E3779B97F4A7C15u >> shift_;
    while (slots_[i].rank != no_rank && slots_[i].pair != pair) i = (i + 1) & (slots_.size() - 1);
    return i;
  }

  std::vector<Merge> slots_;
  unsigned shift_;
};

/// Merges the symbols and appends the result. The pair with the lowest rank is merged first; among equal pairs, the leftmost.
/// Symbols must not be -1.
void append_merged(const MergeTable& merges, const std::int32_t* symbols, std::size_t count, std::vector<std::int64_t>& out);

}  // namespace tessera::json_tokenizer
