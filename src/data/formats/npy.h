#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include <c10/core/ScalarType.h>

namespace tessera {

/// A two-dimensional array of a .npy file as float32.
struct NpyMatrix {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::vector<float> values;  // row-major
};

/// Reads little-endian float16, float32 or float64, C order, one or two dimensions (one: a single row). Throws
/// SampleError `bad_regions` saying what came.
NpyMatrix read_npy(std::string_view file);

/// Numbers of one of the types float16, bfloat16, float32 and float64, little-endian; none of another type.
std::optional<std::vector<float>> to_floats(std::string_view data, c10::ScalarType type);

}  // namespace tessera
