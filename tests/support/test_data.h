#pragma once

#include <cstdlib>
#include <string>

namespace tessera {

/// Returns the path of a file or folder below tests/data. The environment variable TESSERA_TEST_DATA may name a different folder than
/// the one in the source tree.
inline std::string test_data(const std::string& path) {
  const char* const moved = std::getenv("TESSERA_TEST_DATA");
  return std::string(moved != nullptr ? moved : TESSERA_TEST_DATA) + "/" + path;
}

}  // namespace tessera
