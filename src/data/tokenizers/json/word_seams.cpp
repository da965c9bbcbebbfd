#include "src/data/tokenizers/json/word_seams.h"

#include <algorithm>
#include <optional>
#include <unordered_map>

namespace tessera::json_tokenizer {
namespace {

/// The first or the last of the symbols that an id is made of.
class Ends {
 public:
  Ends(const std::vector<MergedPair>& merges, std::int32_t MergedPair::*part) : part_(part) {
    for (const MergedPair& merge : merges) of_.emplace(merge.id, merge.*part);
  }

  /// None if the merges go round in a circle.
  std::optional<std::int32_t> of(std::int32_t id) const {
    std::size_t steps = 0;
    for (auto found = of_.find(id); found != of_.end(); found = of_.find(id)) {
      if (++steps > of_.size()) return std::nullopt;
      id = found->second;
    }
    return id;
  }

  /// Whether an id that several merges make has the same end in all of them.
  bool agrees(const MergedPair& merge) const { return of(merge.*part_) == of(merge.id); }

 private:
  std::int32_t MergedPair::*part_;
  std::unordered_map<std::int32_t, std::int32_t> of_;
};

}  // namespace

WordSeams::WordSeams(const std::vector<MergedPair>& merges, const std::vector<std::int32_t>& symbols)
    : frequent_(most_frequent * most_frequent) {
  number(merges, symbols);
  const std::unordered_set<std::int32_t> never_made(symbols.begin(), symbols.end());
  const Ends first(merges, &MergedPair::left), last(merges, &MergedPair::right);
  for (const MergedPair& merge : merges) {
    const auto left = last.of(merge.left), right = first.of(merge.right);
    if (never_made.contains(merge.id) || !left || !right || !first.agrees(merge) || !last.agrees(merge)) return;
    join(*left, *right);
  }
  usable_ = true;
}

void WordSeams::number(const std::vector<MergedPair>& merges, const std::vector<std::int32_t>& symbols) {
  std::int32_t largest = 0;
  for (const std::int32_t symbol : symbols) largest = std::max(largest, symbol);
  for (const MergedPair& merge : merges) largest = std::max({largest, merge.left, merge.right, merge.id});
  index_.assign(static_cast<std::size_t>(largest) + 1, -1);
  std::int16_t next = 0;
  for (const std::int32_t symbol : symbols) {
    std::int16_t& index = index_[static_cast<std::size_t>(symbol)];
    if (index < 0 && static_cast<std::size_t>(next) < most_frequent) index = next++;
  }
}

void WordSeams::join(std::int32_t left, std::int32_t right) {
  const std::int16_t row = index_[static_cast<std::size_t>(left)], column = index_[static_cast<std::size_t>(right)];
  if (row >= 0 && column >= 0)
    frequent_[place_of(row, column)] = true;
  else
    joined_.insert(pair_of(left, right));
}

}  // namespace tessera::json_tokenizer
