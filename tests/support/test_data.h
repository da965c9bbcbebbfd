#pragma once

#include <cstdlib>
#include <string>

namespace tessera {

/// Path of a file or folder below tests/data: of the folder that the environment variable TESSERA_TEST_DATA names, or of
/// the source tree that the tests were built from.
inline std::string test_data(const std::string& path) {
  const char* const moved = std::getenv("TESSERA_TEST_DATA");
  return std::string(moved != nullptr ? moved : TESSERA_TEST_DATA) + "/" + path;
}

}  // namespace tessera
