#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <c10/core/ScalarType.h>

namespace tessera::io {

/// Where one tensor is stored in a safetensors file. Offsets count from the end of the header.
struct TensorEntry {
  std::string name;
  at::ScalarType dtype;
  std::vector<std::int64_t> shape;
  std::uint64_t begin;
  std::uint64_t end;
};

struct SafetensorsHeader {
  std::vector<TensorEntry> entries;  // sorted by the position of their data
  std::map<std::string, std::string> metadata;
};

/// The longest header that is accepted, as in the reference library.
constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;

/// Parses and checks the JSON header of a file with `data_bytes` bytes of data. The data is neither read nor allocated. Throws
/// UserError naming `path` and the tensor.
SafetensorsHeader parse_safetensors_header(const std::string& text, std::uint64_t data_bytes, const std::string& path);

/// Returns the name of a dtype in safetensors files (such as "F32"), or nullptr if the dtype is not supported.
const char* safetensors_dtype_name(at::ScalarType dtype);

/// Returns a dtype's position in the reference library's order of dtypes. Tensors whose dtype has the greatest position are written first.
int safetensors_dtype_rank(at::ScalarType dtype);

}  // namespace tessera::io
