#include "src/data/tokenizers/json/byte_trie.h"

#include <algorithm>
#include <bitset>

namespace tessera::json_tokenizer {

/// Builds the trie of sorted texts and places its nodes in blocks of 256 units.
class ByteTrie::Builder {
 public:
  Builder(const Texts& texts, std::vector<Unit>& units) : texts_(texts), units_(units) {
    units_.assign(block_size, {});
    std::vector<Range> waiting = {{0, texts.size(), 0, 0}};
    while (!waiting.empty()) {
      const Range range = waiting.back();
      waiting.pop_back();
      add_children(range, waiting);
    }
  }

 private:
  static constexpr std::uint32_t block_size = 256;
  static constexpr std::size_t most_open = 8;  // maximum number of blocks in which free units are searched for

  /// The texts with the indices `first` to `last` - 1. Their first `depth` bytes are equal and lead to `node`.
  struct Range {
    std::size_t first, last, depth;
    std::uint32_t node;
  };
  struct Block {
    std::uint32_t begin;
    std::bitset<block_size> taken;
  };

  std::uint8_t byte_of(std::size_t text, std::size_t depth) const { return static_cast<std::uint8_t>(texts_[text].first[depth]); }

  void add_children(Range range, std::vector<Range>& waiting) {
    if (range.first < range.last && texts_[range.first].first.size() == range.depth) {
      if (range.depth > 0) units_[range.node].number = texts_[range.first].second;
      ++range.first;
    }
    if (range.first == range.last) return;
    bytes_.clear();
    begins_.clear();
    for (std::size_t i = range.first; i < range.last; ++i)
      if (bytes_.empty() || byte_of(i, range.depth) != bytes_.back()) {
        bytes_.push_back(byte_of(i, range.depth));
        begins_.push_back(i);
      }
    begins_.push_back(range.last);
    const std::uint32_t base = base_for_bytes();
    units_[range.node].base = base;
    for (std::size_t k = 0; k < bytes_.size(); ++k) {
      const std::uint32_t child = base ^ bytes_[k];
      units_[child].parent = range.node;
      waiting.push_back({begins_[k], begins_[k + 1], range.depth + 1, child});
    }
  }

  // Finds a base for which all children in `bytes_` have a free unit, and takes these units.
  std::uint32_t base_for_bytes() {
    for (Block& block : open_)
      for (std::uint32_t base = 0; base < block_size; ++base)
        if (std::none_of(bytes_.begin(), bytes_.end(), [&](std::uint8_t byte) { return block.taken[base ^ byte]; })) return take(block, base);
    if (open_.size() == most_open) open_.erase(open_.begin());
    open_.push_back({static_cast<std::uint32_t>(units_.size()), {}});
    units_.resize(units_.size() + block_size);
    return take(open_.back(), 0);
  }

  std::uint32_t take(Block& block, std::uint32_t base) {
    for (const std::uint8_t byte : bytes_) block.taken.set(base ^ byte);
    const std::uint32_t out = block.begin + base;
    if (block.taken.all()) open_.erase(open_.begin() + (&block - open_.data()));
    return out;
  }

  const Texts& texts_;
  std::vector<Unit>& units_;
  std::vector<Block> open_;
  std::vector<std::uint8_t> bytes_;   // the bytes of one node's children
  std::vector<std::size_t> begins_;   // index of each child's first text, then the index after the last text
};

ByteTrie::ByteTrie(Texts texts) {
  std::stable_sort(texts.begin(), texts.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  Texts distinct;
  distinct.reserve(texts.size());
  for (auto& text : texts) {
    if (!distinct.empty() && distinct.back().first == text.first)
      distinct.back().second = text.second;
    else
      distinct.push_back(std::move(text));
  }
  Builder(distinct, units_);
}

}  // namespace tessera::json_tokenizer
