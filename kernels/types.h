#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__CUDACC__)
#define TESSERA_HOST_DEVICE __host__ __device__
#else
#define TESSERA_HOST_DEVICE
#endif

namespace tessera::kernels {

enum class DataType { kFloat32, kBfloat16 };

enum class Pass { kForward, kBackward };

static constexpr std::size_t size_of(DataType type) {
  return type == DataType::kFloat32 ? 4 : 2;
}

/// A batch of row-major matrices [batch, rows, width], each with a contiguous last dimension. Strides are in elements.
struct ConstRows {
  const void* data = nullptr;
  std::int64_t batch_stride = 0;
  std::int64_t row_stride = 0;
};
struct Rows {
  void* data = nullptr;
  std::int64_t batch_stride = 0;
  std::int64_t row_stride = 0;
};

/// Converts a bfloat16 to float32 on the host. A bfloat16 is the upper half of a float32. The function is static, so that a
/// source compiled for AVX-512 has its own copy.
static inline float bfloat16_to_float(std::uint16_t bits) {
  const std::uint32_t word = static_cast<std::uint32_t>(bits) << 16;
  float value;
  std::memcpy(&value, &word, sizeof(value));
  return value;
}
/// Rounds to the nearest bfloat16, and ties to even. NaN stays NaN.
static inline std::uint16_t float_to_bfloat16(float value) {
  std::uint32_t word;
  std::memcpy(&word, &value, sizeof(word));
  if ((word & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>((word >> 16) | 0x40u);
  return static_cast<std::uint16_t>((word + 0x7fffu + ((word >> 16) & 1u)) >> 16);
}

}  // namespace tessera::kernels
