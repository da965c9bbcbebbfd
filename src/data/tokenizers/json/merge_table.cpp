#include "src/data/tokenizers/json/merge_table.h"

#include <algorithm>
#include <array>
#include <bit>
#include <queue>

namespace tessera::json_tokenizer {

MergeTable::MergeTable(std::size_t expected) : slots_(std::bit_ceil(2 * expected + 2)), shift_(static_cast<unsigned>(64 - std::countr_zero(slots_.size()))) {}

void MergeTable::insert(std::int32_t left, std::int32_t right, std::int32_t rank, std::int32_t id) {
  const std::uint64_t pair = pair_of(left, right);
  slots_[index_of(pair)] = {pair, rank, id};
}

namespace {

constexpr std::size_t longest_short = 96;  // maximum number of symbols for append_short(), which takes quadratic time

void append_short(const MergeTable& merges, const std::int32_t* symbols, std::size_t count, std::vector<std::int64_t>& out) {
  std::array<std::int32_t, longest_short> ids;           // NOLINT: filled up to `count`
  std::array<std::int32_t, longest_short> ranks, made;   // NOLINT: rank and merged id of each symbol's pair with the next one
  const auto look = [&](std::size_t i) {
    const MergeTable::Merge& merge = merges.find(ids[i], ids[i + 1]);
    ranks[i] = merge.rank;
    made[i] = merge.id;
  };
  std::copy_n(symbols, count, ids.begin());
  for (std::size_t i = 0; i + 1 < count; ++i) look(i);
  while (count > 1) {
    std::int32_t lowest = MergeTable::no_rank;
    for (std::size_t i = 0; i + 1 < count; ++i) lowest = std::min(lowest, ranks[i]);
    if (lowest == MergeTable::no_rank) break;
    std::size_t at = 0;
    while (ranks[at] != lowest) ++at;
    ids[at] = made[at];
    --count;
    for (std::size_t i = at + 1; i < count; ++i) {
      ids[i] = ids[i + 1];
      ranks[i] = ranks[i + 1];
      made[i] = made[i + 1];
    }
    if (at > 0) look(at - 1);
    if (at + 1 < count) look(at);
  }
  out.insert(out.end(), ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(count));
}

struct Symbol {
  std::int32_t id;  // -1: merged into the previous symbol
  std::uint32_t previous, next;
};

struct Candidate {
  std::int32_t rank;
  std::uint32_t left;  // index of the left symbol
  std::int32_t left_id, right_id, id;
  bool operator>(const Candidate& other) const { return rank != other.rank ? rank > other.rank : left > other.left; }
};

// Returns the same as append_short(), but uses a heap, so that a word of a megabyte does not take quadratic time.
void append_long(const MergeTable& merges, const std::int32_t* ids, std::size_t count, std::vector<std::int64_t>& out) {
  constexpr std::uint32_t none = ~std::uint32_t{0};
  std::vector<Symbol> symbols(count);
  for (std::uint32_t i = 0; i < count; ++i) symbols[i] = {ids[i], i == 0 ? none : i - 1, i + 1 == count ? none : i + 1};
  std::vector<Candidate> found;
  const auto consider = [&](std::uint32_t left, auto&& keep) {
    const std::int32_t a = symbols[left].id, b = symbols[symbols[left].next].id;
    if (const MergeTable::Merge& merge = merges.find(a, b); merge.rank != MergeTable::no_rank) keep(Candidate{merge.rank, left, a, b, merge.id});
  };
  for (std::uint32_t i = 0; i + 1 < count; ++i) consider(i, [&](const Candidate& candidate) { found.push_back(candidate); });
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> heap(std::greater<>(), std::move(found));
  const auto push = [&](const Candidate& candidate) { heap.push(candidate); };
  while (!heap.empty()) {
    const Candidate best = heap.top();
    heap.pop();
    Symbol& left = symbols[best.left];
    if (left.id != best.left_id || left.next == none || symbols[left.next].id != best.right_id) continue;
    Symbol& right = symbols[left.next];
    left.id = best.id;
    right.id = -1;
    left.next = right.next;
    if (left.next != none) symbols[left.next].previous = best.left;
    if (left.previous != none) consider(left.previous, push);
    if (left.next != none) consider(best.left, push);
  }
  for (const Symbol& symbol : symbols)
    if (symbol.id >= 0) out.push_back(symbol.id);
}

}  // namespace

void append_merged(const MergeTable& merges, const std::int32_t* symbols, std::size_t count, std::vector<std::int64_t>& out) {
  if (count <= longest_short)
    append_short(merges, symbols, count, out);
  else
    append_long(merges, symbols, count, out);
}

}  // namespace tessera::json_tokenizer
