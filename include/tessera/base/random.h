#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <vector>

namespace tessera {

/// The finalizer of splitmix64: spreads the bits of a word over all 64 bits.
inline std::uint64_t spread_bits(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15ULL;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

/// What a stream of random numbers is used for. The purpose is part of the key, so two uses for one sample never share numbers.
enum class Purpose : std::uint32_t {
  shuffle = 1,
  crop = 2,
  flip = 3,
  caption = 4,
  shapes = 5,
  initialization = 6,
  step = 7,
  projection = 8,
  color = 9,
  grayscale = 10,
  blur = 11,
  solarize = 12,
  auto_augment = 13,
  rand_augment = 14,
  bootstrap = 15,
  negatives = 17,
  moments = 18,
  balance = 19,
  clusters = 20,
};

/// Counter-based random numbers (Philox4x32-10, Salmon et al. 2011). The stream depends only on its key, never on the order in which
/// threads draw. A key is (seed, purpose, words...), for example (seed, crop, epoch, sample index).
class Random {
 public:
  Random(std::uint64_t seed, Purpose purpose, std::initializer_list<std::uint64_t> words = {});

  std::uint32_t next();
  /// Uniform in [0, 1) with 53 random bits.
  double uniform();
  /// Uniform in [low, high).
  double uniform(double low, double high) { return low + (high - low) * uniform(); }
  /// Uniform in {0, ..., count - 1}, without bias. count must be positive.
  std::int64_t below(std::int64_t count);
  bool chance(double probability) { return uniform() < probability; }
  /// Permutes the items (Fisher-Yates).
  template <class T>
  void shuffle(std::vector<T>& items) {
    for (std::size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[static_cast<std::size_t>(below(static_cast<std::int64_t>(i)))]);
  }
  template <class T>
  const T& pick(const std::vector<T>& items) { return items[static_cast<std::size_t>(below(static_cast<std::int64_t>(items.size())))]; }

 private:
  std::array<std::uint32_t, 2> key_{};
  std::array<std::uint32_t, 4> counter_{};
  std::array<std::uint32_t, 4> block_{};
  int used_ = 4;
};

/// Derives a 64-bit seed from a key, for generators of other libraries (for example the torch generator of one step).
std::uint64_t derive_seed(std::uint64_t seed, Purpose purpose, std::initializer_list<std::uint64_t> words = {});

}  // namespace tessera
