#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include <c10/core/ScalarType.h>

namespace tessera {

/// A two-dimensional array from a .npy file, as float32.
struct NpyMatrix {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::vector<float> values;  // row-major
};

/// Reads little-endian float16, float32 or float64, in C order, with one or two dimensions (one: a single row). Throws
/// SampleError `bad_regions` that says what was found instead.
NpyMatrix read_npy(std::string_view file);

/// Converts little-endian float16, bfloat16, float32 or float64 to float32; returns nullopt for another type.
std::optional<std::vector<float>> to_floats(std::string_view data, c10::ScalarType type);

}  // namespace tessera
