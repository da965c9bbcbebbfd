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
  std::vector<bool> missed(splits_.size());  // tokens that a merge joins, and that none has made yet
  for (std::size_t i = 0; i < merges.size(); ++i) {
    const MergedPair& merge = merges[i];
    const auto rank = static_cast<std::int32_t>(i);
    if (table.find(merge.left, merge.right).rank != rank) continue;  // the pair comes again, and then counts
    Split& made = splits_[static_cast<std::size_t>(merge.id)];
    if (made.rank < 0) return false;
    if (!is_made(merge.left) || !is_made(merge.right)) {
      missed[static_cast<std::size_t>(is_made(merge.left) ? merge.right : merge.left)] = true;
      continue;
    }
    if (made.rank != MergeTable::no_rank || !stay_apart(table, merge.left, merge.right, rank)) continue;
    if (missed[static_cast<std::size_t>(merge.id)]) return false;
    made = {rank, merge.left, merge.right};
  }
  return true;
}

}  // namespace tessera::json_tokenizer
