#include "src/data/tokenizers/json/token_splits.h"

#include <algorithm>

namespace tessera::json_tokenizer {

TokenSplits::TokenSplits(const std::vector<MergedPair>& merges, const MergeTable& table, const std::vector<std::int32_t>& symbols) {
  std::int32_t largest = 0;
  for (const std::int32_t symbol : symbols) largest = std::max(largest, symbol);
  for (const MergedPair& merge : merges) largest = std::max({largest, merge.left, merge.right, merge.id});
  splits_.resize(static_cast<std::size_t>(largest) + 1);
  for (const std::int32_t symbol : symbols) splits_[static_cast<std::size_t>(symbol)].rank = -1;
  usable_ = read(merges, table);
}

bool TokenSplits::read(const std::vector<MergedPair>& merges, const MergeTable& table) {
  std::vector<std::size_t> early;  // merges that use a token which is neither a symbol nor built by an earlier merge
  for (std::size_t i = 0; i < merges.size(); ++i) {
    const MergedPair& merge = merges[i];
    const auto rank = static_cast<std::int32_t>(i);
    if (table.find(merge.left, merge.right).rank != rank) continue;  // a later merge of the same pair replaces this one
    Split& made = splits_[static_cast<std::size_t>(merge.id)];
    if (made.rank < 0) return false;
    if (!is_made(merge.left) || !is_made(merge.right)) {
      early.push_back(i);
      continue;
    }
    if (made.rank != MergeTable::no_rank || !stay_apart(table, merge.left, merge.right, rank)) continue;
    made = {rank, merge.left, merge.right};
  }
  // Each token has only one split. So an early merge changes nothing if other merges already build its result. An early merge also changes
  // nothing if its two tokens are never adjacent.
  return std::none_of(early.begin(), early.end(), [&](std::size_t i) {
    const MergedPair& merge = merges[i];
    return !is_made(merge.id) && is_made(merge.left) && is_made(merge.right) && stay_apart(table, merge.left, merge.right, static_cast<std::int32_t>(i));
  });
}

}  // namespace tessera::json_tokenizer
