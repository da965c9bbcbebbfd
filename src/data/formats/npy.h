#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

/// Thrown with what is wrong with a .npy file, such as "its header is cut". The reader adds the file's name and what was expected.
struct BadNpy : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// A .npy file in C order.
struct NpyFile {
  std::vector<std::int64_t> shape;
  std::string_view type;  // as the header writes it: '<f4' with its quotes, or the list of a structured type
  std::string_view data;  // all that follows the header

  /// Returns the bytes of the array, whose elements have `bytes` bytes. Throws BadNpy if the file ends before.
  std::string_view elements(std::size_t bytes) const;
};

/// Reads the header of a .npy file. Throws BadNpy if there is none, or if the array is in Fortran order.
NpyFile parse_npy(std::string_view file);

}  // namespace tessera
