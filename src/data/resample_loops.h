#pragma once

#include <cstdint>
#include <vector>

namespace tessera {

/// For each output position of a window: the first input position, how many there are, and their integer weights.
struct ResampleWeights {
  static constexpr int precision = 22;  // bits of a weight's fraction: 32 - 8 for the pixel - 2 for overshoot
  std::int64_t outputs = 0;
  std::int64_t taps = 0;   // row length of `values`
  std::int64_t steps = 0;  // the largest count, rounded up to an even number: at most `taps`
  std::vector<std::int64_t> first;
  std::vector<std::int64_t> count;
  std::vector<std::int32_t> values;  // [outputs, taps], 0 behind the last

  /// The inputs that are read at all: [begin, end).
  std::int64_t begin() const { return first.front(); }
  std::int64_t end() const { return first.back() + count.back(); }
  void shift(std::int64_t by) {
    for (std::int64_t& each : first) each -= by;
  }
};

/// The two inner loops of resampling, both rounding and clamping to 8 bits.
struct ResampleLoops {
  /// `across` may read this far behind the last input pixel (where it multiplies by 0), and write 1 byte behind the
  /// last output pixel.
  static std::int64_t slack(const ResampleWeights& weights) { return 3 * weights.steps + 8; }

  /// One row of RGB: out[i] = sum_j in[first_i + j] * w_ij.
  void (*across)(const std::uint8_t* in, std::uint8_t* out, const ResampleWeights& weights);
  /// One output row of `length` bytes: out[x] = sum_j in[x + j * stride] * weight[j], j < count.
  void (*down)(const std::uint8_t* in, std::int64_t stride, std::uint8_t* out, std::int64_t length,
               const std::int32_t* weight, std::int64_t count);
};

/// The fastest that this machine can run; all give the same bytes.
ResampleLoops choose_resample_loops();
/// Plain C++, for any machine.
ResampleLoops portable_resample_loops();

}  // namespace tessera
