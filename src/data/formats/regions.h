#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <c10/core/ScalarType.h>

#include <tessera/sample.h>

namespace tessera {

/// A two-dimensional array from a .npy file, as float32.
struct NpyMatrix {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::vector<float> values;  // row-major
};

/// Where the numbers of a .npy file are.
struct NpyLayout {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  c10::ScalarType type;
  std::string_view data;  // a part of the file
};

/// Finds the numbers of a .npy file without reading them. Accepts and throws what read_npy() does.
NpyLayout npy_layout(std::string_view file);

/// Reads a .npy file of little-endian float16, float32 or float64 values in C order, with one or two dimensions. An array of
/// one dimension becomes a single row. Throws SampleError `bad_regions` for other files; the message says what was found.
NpyMatrix read_npy(std::string_view file);

/// Returns the numbers of a .npy file of one dimension, whose type may be any of little-endian integers, floats and booleans. Throws
/// SampleError `bad_fields` for other files; the message begins with `what`, the file's name in messages.
std::vector<double> read_npy_numbers(std::string_view file, const std::string& what);

/// Sets a sample's region features [R, F] from a file's bytes, which may be a .npy (see read_npy) or a safetensors file with float16,
/// bfloat16, float32 or float64. `tensor` is the name of the tensor in a safetensors file; if it is empty, the first tensor is read. Throws
/// SampleError `bad_regions` for other bytes; the message says what was found.
void set_regions(std::string_view file, const std::string& tensor, Sample& sample);

}  // namespace tessera
