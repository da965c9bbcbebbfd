#pragma once

#include <cstdint>
#include <vector>

#include "src/data/tokenizers/json/merge_table.h"

namespace tessera::json_tokenizer {

/// One merge of a byte pair model, by ids.
struct MergedPair {
  std::int32_t left, right, id;
};

/// Knows how the merges build each token, which determines which tokens may be adjacent. A sequence of tokens is the result of the merges
/// for its text if and only if two conditions hold: the merges build each token from the token's own text, and in the joined text of two
/// neighboring tokens no merge crosses the border between them. It is enough to check pairs of neighbors, because the merges act inside a
/// token as they do on that token's text alone. So the first merge across a border would also happen in the joined text of the two tokens
/// at this border.
class TokenSplits {
 public:
  TokenSplits() = default;
  /// `merges` is in the order of ranks. `table` holds the same merges. `symbols` are the ids that words consist of before any
  /// merge.
  TokenSplits(const std::vector<MergedPair>& merges, const MergeTable& table, const std::vector<std::int32_t>& symbols);

  /// Returns whether this class can be used with these merges. It cannot be used if the only merge that builds some token comes before the
  /// merge that builds one of this token's two parts.
  bool usable() const { return usable_; }
  /// Returns whether the merges build this token from its text.
  bool is_made(std::int32_t id) const {
    return static_cast<std::size_t>(id) < splits_.size() && splits_[static_cast<std::size_t>(id)].rank != MergeTable::no_rank;
  }
  /// Returns whether the merges below rank `limit` turn the joined text of two tokens into exactly these two tokens. is_made()
  /// must be true for both.
  bool stay_apart(const MergeTable& table, std::int32_t left, std::int32_t right, std::int32_t limit = MergeTable::no_rank) const {
    while (table.find(left, right).rank >= limit) {
      const Split &first = splits_[static_cast<std::size_t>(left)], &second = splits_[static_cast<std::size_t>(right)];
      if (first.rank < 0 && second.rank < 0) return true;
      // Undoes the later of the two merges that built the left and the right token. If both merges have the same rank, the right token's
      // merge is the later one, because equal merges happen from left to right.
      if (first.rank > second.rank) {
        limit = first.rank;
        left = first.right;
      } else {
        limit = second.rank + 1;
        right = second.left;
      }
    }
    return false;
  }

 private:
  struct Split {
    std::int32_t rank = MergeTable::no_rank;  // rank of the merge that builds the token; -1: the token is a symbol
    std::int32_t left = -1, right = -1;
  };
  bool read(const std::vector<MergedPair>& merges, const MergeTable& table);

  bool usable_ = false;
  std::vector<Split> splits_;  // each token's split, by token id
};

}  // namespace tessera::json_tokenizer
