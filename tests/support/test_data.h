#pragma once

#include <cstdlib>
#include <string>

namespace tessera {

/// Returns the path of a file or folder below tests/data, in the folder that the environment variable TESSERA_TEST_DATA names or
/// else in the source tree that the tests were built from.
inline std::string test_data(const std::string& path) {
  const char* const moved = std::getenv("TESSERA_TEST_DATA");
  return std::string(moved != nullptr ? moved : TESSERA_TEST_DATA) + "/" + path;
}

}  // namespace tessera
