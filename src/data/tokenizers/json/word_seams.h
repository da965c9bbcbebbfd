#pragma once

#include <cstdint>
#include <unordered_set>
#include <vector>

namespace tessera::json_tokenizer {

/// One merge of a byte-pair model, by ids.
struct MergedPair {
  std::int32_t left, right, id;
};

/// The places in a word across which no merge reaches: what stands on either side merges by itself, so that a long word falls
/// into short ones. A place is known by the two symbols beside it.
class WordSeams {
 public:
  WordSeams() = default;
  /// `symbols`: the ids that words begin as, the frequent ones first. Where a merge makes one of them, there are no seams.
  WordSeams(const std::vector<MergedPair>& merges, const std::vector<std::int32_t>& symbols);

  /// Whether no merge reaches across the place between two symbols.
  bool between(std::int32_t left, std::int32_t right) const {
    if (!usable_) return false;
    const std::int16_t row = index_[static_cast<std::size_t>(left)], column = index_[static_cast<std::size_t>(right)];
    if (row >= 0 && column >= 0) return !frequent_[place_of(row, column)];
    return joined_.find(pair_of(left, right)) == joined_.end();
  }

 private:
  static constexpr std::size_t most_frequent = 1024;
  static std::size_t place_of(std::int16_t row, std::int16_t column) {
    return static_cast<std::size_t>(row) * most_frequent + static_cast<std::size_t>(column);
  }
  static std::uint64_t pair_of(std::int32_t left, std::int32_t right) {
    return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 | static_cast<std::uint32_t>(right);
  }
  void number(const std::vector<MergedPair>& merges, const std::vector<std::int32_t>& symbols);
  void join(std::int32_t left, std::int32_t right);

  bool usable_ = false;
  std::vector<std::int16_t> index_;  // of an id among the frequent ones; -1: it is none
  std::vector<bool> frequent_;       // joined pairs of them
  std::unordered_set<std::uint64_t> joined_;
};

}  // namespace tessera::json_tokenizer
