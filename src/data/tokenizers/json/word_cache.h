#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string_view>
#include <vector>

#include "src/data/tokenizers/json/model.h"

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
      if (size >= 8)
        std::memcpy(words.data(), word.data(), size);
      else
        words[0] = load_short(word);
    }
    std::size_t hash() const {
      std::uint64_t mixed = (words[0] ^ (owner + size)) * 0x9E3779B97F4A7C15u;
      if (size > 8) mixed = (mixed ^ mixed >> 29 ^ words[1]) * 0xC2B2AE3D27D4EB4Fu;
      if (size > 16) {
        mixed = (mixed ^ mixed >> 31 ^ words[2]) * 0x9E3779B97F4A7C15u;
        mixed = (mixed ^ mixed >> 30 ^ words[3]) * 0xC2B2AE3D27D4EB4Fu;
      }
      return mixed >> (64 - slot_bits);
    }

   private:
    // Returns up to seven bytes as a number. Overlapping loads are faster than a copy of variable size.
    static std::uint64_t load_short(std::string_view word) {
      const std::size_t n = word.size();
      const auto one = [&](std::size_t k) { return std::uint64_t{static_cast<std::uint8_t>(word[k])} << 8 * k; };
      if (n < 4) return n == 0 ? 0 : one(0) | one(n / 2) | one(n - 1);
      std::uint32_t head, tail;
      std::memcpy(&head, word.data(), 4);
      std::memcpy(&tail, word.data() + n - 4, 4);
      return head | std::uint64_t{tail} << 8 * (n - 4);
    }
  };

  /// Appends the ids of a word for a model: those of the calling thread's cache, or what append(word, out) appends, which are then cached.
  template <class Append>
  static void encode(std::string_view word, std::uint32_t model, std::vector<std::int64_t>& out, const Append& append) {
    if (word.size() > longest) return append(word, out);
    WordCache& cache = of_thread();
    const Key key(word, model);
    if (cache.find(key, out)) return;
    const std::size_t before = out.size();
    append(word, out);
    cache.keep(key, out.data() + before, out.size() - before);
  }

  /// Returns the calling thread's cache.
  static WordCache& of_thread() {
    thread_local WordCache cache;
    return cache;
  }

  /// If the word is cached, appends its ids and returns true.
  bool find(const Key& key, std::vector<std::int64_t>& out) const {
    const Slot& slot = slots_[key.hash()];
    const auto differs = [&](std::size_t i) { return slot.words[i] ^ key.words[i]; };
    if (slot.owner != key.owner || slot.size != key.size || (differs(0) | differs(1) | differs(2) | differs(3)) != 0) return false;
    for (std::size_t i = 0; i < slot.count; ++i) out.push_back(slot.ids[i]);
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
inline std::uint32_t next_cache_owner() {
  static std::atomic<std::uint32_t> last = 0;
  return ++last;
}

/// Returns a model that keeps the ids of recent words. Words that are not kept are encoded by rules->append(word, ids).
template <class Rules>
Model cached(std::shared_ptr<const Rules> rules) {
  return [rules = std::move(rules), owner = next_cache_owner()](std::string_view piece, std::vector<std::int64_t>& out) {
    WordCache::encode(piece, owner, out, [&](std::string_view word, std::vector<std::int64_t>& ids) { rules->append(word, ids); });
  };
}

}  // namespace tessera::json_tokenizer
