#include <tessera/base/random.h>

namespace tessera {
namespace {

std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> c, std::array<std::uint32_t, 2> k) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = 0xD2511F53ULL * c[0];
    const std::uint64_t b = 0xCD9E8D57ULL * c[2];
    c = {static_cast<std::uint32_t>(b >> 32) ^ c[1] ^ k[0], static_cast<std::uint32_t>(b),
         static_cast<std::uint32_t>(a >> 32) ^ c[3] ^ k[1], static_cast<std::uint32_t>(a)};
    k[0] += 0x9E3779B9U;
    k[1] += 0xBB67AE85U;
  }
  return c;
}

}  // namespace

std::uint64_t derive_seed(std::uint64_t seed, Purpose purpose, std::initializer_list<std::uint64_t> words) {
  std::uint64_t h = spread_bits(spread_bits(seed) ^ static_cast<std::uint64_t>(purpose));
  for (std::uint64_t word : words) h = spread_bits(h ^ word);
  return h;
}

Random::Random(std::uint64_t seed, Purpose purpose, std::initializer_list<std::uint64_t> words) {
  const std::uint64_t h = derive_seed(seed, purpose, words);
  key_ = {static_cast<std::uint32_t>(h), static_cast<std::uint32_t>(h >> 32)};
}

std::uint32_t Random::next() {
  if (used_ == 4) {
    block_ = philox(counter_, key_);
    if (++counter_[0] == 0) ++counter_[1];
    used_ = 0;
  }
  return block_[static_cast<std::size_t>(used_++)];
}

double Random::uniform() {
  const std::uint64_t high = next() >> 5;
  const std::uint64_t low = next() >> 6;
  return static_cast<double>(high * 67108864 + low) * 0x1.0p-53;
}

std::int64_t Random::below(std::int64_t count) {
  const auto n = static_cast<std::uint64_t>(count);
  const std::uint64_t limit = UINT64_MAX - UINT64_MAX % n;
  while (true) {
    const std::uint64_t high = next();
    const std::uint64_t value = (high << 32) | next();
    if (value < limit) return static_cast<std::int64_t>(value % n);
  }
}

}  // namespace tessera
