#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

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

}  // namespace tessera
