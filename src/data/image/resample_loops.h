#pragma once

#include <cstdint>
#include <vector>

namespace tessera {

/// The weights of a resampling. Each output position has a first input position, a number of inputs, and an integer weight for
/// each input.
struct ResampleWeights {
  static constexpr int precision = 22;  // fraction bits of a weight: 32, minus 8 for the pixel, minus 2 for overshoot
  std::int64_t outputs = 0;
  std::int64_t taps = 0;  // row length of `values`, a multiple of 4
  std::vector<std::int64_t> first;
  std::vector<std::int64_t> count;
  std::vector<std::int32_t> values;  // [outputs, taps]; the weights after the first `count` of a row are 0
  std::vector<std::int16_t> halves;  // [outputs, taps / 4, 8]: the upper bits of 4 weights, then their lower 12 bits

  /// The input positions from which the outputs are computed are [begin(), end()).
  std::int64_t begin() const;
  std::int64_t end() const;
  void shift(std::int64_t by) {
    for (std::int64_t& each : first) each -= by;
  }
  /// Reverses the order of the outputs.
  void mirror();
  /// Fills `halves` from `values`.
  void split();
};

/// The inner loops of resampling and of the conversion to planes. The resampling loops round and clamp to 8 bits.
struct ResampleLoops {
  /// Returns how many bytes `across` may read past the last input pixel (with weight 0) and write past the last output pixel.
  static std::int64_t slack(const ResampleWeights& weights) { return 3 * weights.taps + 16; }

  /// Computes one row of RGB: out[i] = sum_j in[first_i + j] * w_ij.
  void (*across)(const std::uint8_t* in, std::uint8_t* out, const ResampleWeights& weights);
  /// Computes the i-th output row, of `length` bytes: out[x] = sum_j in[x + j * stride] * w_ij, j < count_i.
  void (*down)(const std::uint8_t* in, std::int64_t stride, std::uint8_t* out, std::int64_t length,
               const ResampleWeights& weights, std::int64_t i);
  /// Converts interleaved [count, 3] to planes [3, count].
  void (*planes)(const std::uint8_t* in, std::uint8_t* out, std::int64_t count);
};

/// Returns the fastest loops that this machine can run; all of them compute the same bytes.
const ResampleLoops& resample_loops();
/// Returns loops in plain C++, for any machine.
ResampleLoops portable_resample_loops();

}  // namespace tessera
