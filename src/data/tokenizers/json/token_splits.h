#pragma once

#include <cstdint>
#include <vector>

#include "src/data/tokenizers/json/merge_table.h"

namespace tessera::json_tokenizer {

/// One merge of a byte-pair model, by ids.
struct MergedPair {
  std::int32_t left, right, id;
};

/// How the merges make each token, and with it which tokens may stand side by side. A row of tokens is what the merges make of
/// its text exactly if they make each token of its own text, and leave every two neighbours apart: inside of a token they do
/// what they do in that token alone, so the first one that reaches across two tokens would do so in the text of these two.
class TokenSplits {
 public:
  TokenSplits() = default;
  /// `merges` by rank, `table` the same, `symbols` the ids that words begin as.
  TokenSplits(const std::vector<MergedPair>& merges, const MergeTable& table, const std::vector<std::int32_t>& symbols);

  /// False if a merge joins a token that only a later merge makes, and that makes a token no other way: the rest does not
  /// take it into account.
  bool usable() const { return usable_; }
  /// Whether the merges make this one token of its text.
  bool is_made(std::int32_t id) const {
    return static_cast<std::size_t>(id) < splits_.size() && splits_[static_cast<std::size_t>(id)].rank != MergeTable::no_rank;
  }
  /// Whether the merges below the rank `limit` make these two tokens of their joint text; both are made.
  bool stay_apart(const MergeTable& table, std::int32_t left, std::int32_t right, std::int32_t limit = MergeTable::no_rank) const {
    while (table.find(left, right).rank >= limit) {
      const Split &first = splits_[static_cast<std::size_t>(left)], &second = splits_[static_cast<std::size_t>(right)];
      if (first.rank < 0 && second.rank < 0) return true;
      // Back to before the later of the two was made; of equal merges the left one comes first.
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
    std::int32_t rank = MergeTable::no_rank;  // of the merge that makes it; -1: a symbol
    std::int32_t left = -1, right = -1;
  };
  bool read(const std::vector<MergedPair>& merges, const MergeTable& table);

  bool usable_ = false;
  std::vector<Split> splits_;  // by id
};

}  // namespace tessera::json_tokenizer
