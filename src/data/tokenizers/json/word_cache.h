#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string_view>
#include <vector>

namespace tessera::json_tokenizer {

/// Caches the ids of words that a thread encoded recently. The table has a fixed size, and a new word replaces the old word in
/// its slot. Each thread has its own cache. The models of a thread share it, so each model has a number that distinguishes its
/// words.
class WordCache {
 public:
  static constexpr std::size_t longest = 32;  // maximum bytes of a word
  static constexpr std::size_t most_ids = 6;

  /// The cache's key: a word, and the number of the tokenizer model that encodes it. The word must have at most `longest` bytes.
  struct Key {
    std::array<std::uint64_t, 4> words{};
    std::uint32_t owner = 0;
    std::uint8_t size = 0;

    Key(std::string_view word, std::uint32_t model) : owner(model), size(static_cast<std::uint8_t>(word.size())) {
      std::memcpy(words.data(), word.data(), word.size());
    }
    std::size_t hash() const {
      std::uint64_t mixed = words[0] * 0x9E3779B97F4A7C15u ^ (owner + size);
      mixed = (mixed ^ mixed >> 29 ^ words[1]) * 0xC2B2AE3D27D4EB4Fu;
      mixed = (mixed ^ mixed >> 31 ^ words[2]) * 0x9E3779B97F4A7C15u;
      mixed = (mixed ^ mixed >> 30 ^ words[3]) * 0xC2B2AE3D27D4EB4Fu;
      return mixed >> (64 - slot_bits);
    }
  };

  /// Returns the calling thread's cache.
  static WordCache& of_thread() {
    thread_local WordCache cache;
    return cache;
  }

  /// If the word is cached, appends its ids and returns true.
  bool find(const Key& key, std::vector<std::int64_t>& out) const {
    const Slot& slot = slots_[key.hash()];
    if (slot.owner != key.owner || slot.size != key.size || slot.words != key.words) return false;
    out.insert(out.end(), slot.ids.begin(), slot.ids.begin() + slot.count);
    return true;
  }

  /// Caches the word, unless it has more than `most_ids` ids.
  void keep(const Key& key, const std::int64_t* ids, std::size_t count) {
    if (count > most_ids) return;
    Slot& slot = slots_[key.hash()];
    slot.words = key.words;
    slot.owner = key.owner;
    slot.size = key.size;
    slot.count = static_cast<std::uint8_t>(count);
    for (std::size_t i = 0; i < count; ++i) slot.ids[i] = static_cast<std::int32_t>(ids[i]);
  }

 private:
  static constexpr unsigned slot_bits = 14;
  struct alignas(64) Slot {  // one CPU cache line
    std::array<std::uint64_t, 4> words{};
    std::array<std::int32_t, most_ids> ids{};
    std::uint32_t owner = 0;  // 0: empty
    std::uint8_t size = 0, count = 0;
  };

  std::vector<Slot> slots_ = std::vector<Slot>(std::size_t{1} << slot_bits);
};

/// Returns a new number that identifies a model in the caches.
std::uint32_t next_cache_owner();

}  // namespace tessera::json_tokenizer
