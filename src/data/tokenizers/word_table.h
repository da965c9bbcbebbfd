#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace tessera {

/// Maps words to ids; built once, then only read. Nearly all words have at most 15 bytes. Such words are stored in the table itself, which
/// makes lookups fast.
class WordTable {
 public:
  static constexpr std::int32_t none = -1;

  /// Inserts a word. If the word is inserted again, the last id counts.
  void insert(std::string_view word, std::int32_t id) {
    longest_ = word.size() > longest_ ? word.size() : longest_;
    if (word.size() > longest_short) {
      long_words_.insert_or_assign(std::string(word), id);
      return;
    }
    if (2 * (count_ + 1) > slots_.size()) grow();
    Slot& slot = slots_[index_of(key_of(word))];
    if (slot.id == none) ++count_;
    slot = {key_of(word), id};
  }

  /// Returns the word's id, or `none`.
  std::int32_t find(std::string_view word) const {
    if (word.size() <= longest_short) return slots_[index_of(key_of(word))].id;
    const auto found = long_words_.find(word);
    return found == long_words_.end() ? none : found->second;
  }

  /// Returns the number of bytes of the longest word.
  std::size_t longest() const { return longest_; }

 private:
  // A word in 16 bytes: its bytes, padded with zeros, and its length in the last byte.
  struct Key {
    std::uint64_t low = 0, high = 0;
    bool operator==(const Key& other) const { return low == other.low && high == other.high; }
  };
  struct Slot {
    Key key;
    std::int32_t id = none;
  };
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };

  static constexpr std::size_t longest_short = 15;

  // Uses overlapping loads, because they are faster than a copy of variable size.
  static Key key_of(std::string_view word) {
    const char* const p = word.data();
    const std::size_t n = word.size();
    const auto eight = [](const char* at) {
      std::uint64_t out;
      std::memcpy(&out, at, 8);
      return out;
    };
    const auto four = [](const char* at) {
      std::uint32_t out;
      std::memcpy(&out, at, 4);
      return std::uint64_t{out};
    };
    const auto one = [&](std::size_t k) { return std::uint64_t{static_cast<std::uint8_t>(p[k])} << 8 * k; };
    Key key;
    key.high = std::uint64_t{n} << 56;
    if (n > 8) {
      key.low = eight(p);
      key.high |= eight(p + n - 8) >> 8 * (16 - n);
    } else if (n == 8) {
      key.low = eight(p);
    } else if (n >= 4) {
      key.low = four(p) | four(p + n - 4) << 8 * (n - 4);
    } else if (n > 0) {
      key.low = one(0) | one(n / 2) | one(n - 1);
    }
    return key;
  }

  // Returns the slot where the key is, or would be inserted.
  std::size_t index_of(const Key& key) const {
    const std::uint64_t mixed = (key.low ^ (key.high * 0xC2B2AE3D27D4EB4Fu)) * 0x9E3779B97F4A7C15u;
    const std::size_t mask = slots_.size() - 1;
    std::size_t i = (mixed ^ mixed >> 32) & mask;
    while (slots_[i].id != none && !(slots_[i].key == key)) i = (i + 1) & mask;
    return i;
  }

  void grow() {
    std::vector<Slot> old(slots_.size() * 2);
    old.swap(slots_);
    for (const Slot& slot : old)
      if (slot.id != none) slots_[index_of(slot.key)] = slot;
  }

  std::vector<Slot> slots_ = std::vector<Slot>(16);
  std::size_t count_ = 0;
  std::size_t longest_ = 0;
  std::unordered_map<std::string, std::int32_t, Hash, std::equal_to<>> long_words_;
};

}  // namespace tessera
