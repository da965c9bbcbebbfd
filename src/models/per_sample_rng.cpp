#include <cmath>
#include <limits>

#include <ATen/ATen.h>

#include "src/base/digest.h"
#include "src/models/per_sample_rng.h"
#include <tessera/base/random.h>

namespace tessera {
namespace {

thread_local RowRngScope* current = nullptr;

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

// Returns (x ^ (x >> bits)) * factor, with an unsigned shift.
at::Tensor stirred(const at::Tensor& x, std::int64_t bits, std::uint64_t factor) {
  const at::Tensor high = at::bitwise_right_shift(x, bits).bitwise_and_(kMost >> (bits - 1));
  return high.bitwise_xor_(x).mul_(static_cast<std::int64_t>(factor));
}

}  // namespace

at::Tensor row_keys(std::uint64_t step_seed, std::int64_t first, std::int64_t stride, std::int64_t count) {
  at::Tensor keys = at::empty({count}, at::kLong);
  auto* out = keys.data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < count; ++i)
    out[i] = static_cast<std::int64_t>(
        derive_seed(step_seed, Purpose::step, {static_cast<std::uint64_t>(first + i * stride)}));
  return keys;
}

RowRngScope::RowRngScope(at::Tensor keys) : keys_(std::move(keys)), outer_(current) {
  current = this;
}

RowRngScope::~RowRngScope() {
  current = outer_;
}

// Implements SplitMix64 (Steele et al. 2014) with one stream per row. Uses only operators that every device has.
at::Tensor row_random_int(std::int64_t rows, std::int64_t count, const at::Device& device) {
  const at::TensorOptions options = at::TensorOptions(device).dtype(at::kLong);
  const c10::NoGradGuard no_grad;
  if (current == nullptr || !current->keys_.defined()) return at::randint(kMost, {rows, count}, options);
  const at::Tensor& keys = current->keys_;
  TORCH_CHECK(keys.size(0) == rows, "row_random_int: keys of ", keys.size(0), " rows, but the batch has ", rows);
  const at::Tensor place = at::arange(current->drawn_ + 1, current->drawn_ + 1 + count, options);
  current->drawn_ += count;
  const at::Tensor state = keys.unsqueeze(1) + place * static_cast<std::int64_t>(0x9E3779B97F4A7C15ULL);
  const at::Tensor mixed = stirred(stirred(state, 30, 0xBF58476D1CE4E5B9ULL), 27, 0x94D049BB133111EBULL);
  return stirred(mixed, 31, 1).bitwise_and_(kMost);
}

at::Tensor row_keys_of_parts(std::int64_t rows, std::int64_t parts, const at::Device& device) {
  if (current == nullptr || !current->keys_.defined()) return {};
  return row_random_int(rows, parts, device).flatten();
}

at::Tensor token_keys(std::int64_t rows, std::int64_t length, const at::Device& device, const PackedRows& packed) {
  // Draws the keys of a row's tokens from a second stream, which is seeded with one number of the row's main stream. So the main stream
  // advances by one number, whatever the sequence length.
  const RowRngScope scope(row_random_int(rows, 1, device).squeeze(1));
  const at::Tensor keys = row_random_int(rows, packed.defined() ? packed.length : length, device).flatten();
  return packed.defined() ? pack(keys.unflatten(0, {rows, -1}), packed) : keys;
}

at::Tensor row_keys_of_views(const std::vector<std::string>& views) {
  if (current == nullptr || !current->keys_.defined()) return {};
  std::vector<at::Tensor> keys;
  for (const std::string& view : views) {
    const auto number = static_cast<std::int64_t>(fingerprint(view));
    keys.push_back(current->keys_.bitwise_xor(number));
  }
  return keys.size() == 1 ? keys[0] : at::cat(keys);
}

at::Tensor row_uniform(std::int64_t rows, std::int64_t count, const at::Device& device) {
  constexpr int kBits = 23;  // float32 represents the midpoints of 2^23 equal intervals exactly
  const at::Tensor number = at::bitwise_right_shift(row_random_int(rows, count, device), 63 - kBits);
  return (number.to(at::kFloat) + 0.5F) * std::ldexp(1.0F, -kBits);
}

}  // namespace tessera
