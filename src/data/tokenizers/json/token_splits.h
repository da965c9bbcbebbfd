#pragma once

#include <cstdint>
#include <vector>

#include "src/data/tokenizers/json/merge_table.h"

namespace tessera::json_tokenizer {

/// One merge of a byte pair model, by ids.
struct MergedPair {
  std::int32_t left, right, id;
};

/// How the merges build each token, which determines which tokens may be adjacent. A sequence of tokens is the merges' result for
/// its text if and only if they build each token from its own text and merge nothing across any two neighbors. Reason: within a
/// token they act as in that token alone, so the first merge across two tokens would also happen in the text of just these two.
class TokenSplits {
 public:
  TokenSplits() = default;
  /// `merges`: by rank. `table`: the same merges. `symbols`: the ids that words consist of before any merge.
  TokenSplits(const std::vector<MergedPair>& merges, const MergeTable& table, const std::vector<std::int32_t>& symbols);

  /// False if this analysis does not apply: a merge uses a token that only a later merge builds, and its result is built in no
  /// other way.
  bool usable() const { return usable_; }
  /// Whether the merges build this token from its text.
  bool is_made(std::int32_t id) const {
    return static_cast<std::size_t>(id) < splits_.size() && splits_[static_cast<std::size_t>(id)].rank != MergeTable::no_rank;
  }
  /// Whether the merges below rank `limit` turn the joint text of these two tokens into exactly these two; is_made() must hold
  /// for both.
  bool stay_apart(const MergeTable& table, std::int32_t left, std::int32_t right, std::int32_t limit = MergeTable::no_rank) const {
    while (table.find(left, right).rank >= limit) {
      const Split &first = splits_[static_cast<std::size_t>(left)], &second = splits_[static_cast<std::size_t>(right)];
      if (first.rank < 0 && second.rank < 0) return true;
      // Undoes the later of the two tokens' last merges; of equal merges the left one comes first.
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
    std::int32_t rank = MergeTable::no_rank;  // of the merge that builds it; -1: a symbol
    std::int32_t left = -1, right = -1;
  };
  bool read(const std::vector<MergedPair>& merges, const MergeTable& table);

  bool usable_ = false;
  std::vector<Split> splits_;  // by id
};

}  // namespace tessera::json_tokenizer
