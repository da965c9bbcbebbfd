#pragma once

#include <concepts>
#include <cstdlib>
#include <string>

#include "tests/support/temporary_folder.h"
#include <tessera/data/source.h>

namespace tessera {

/// Runs a shell command and returns whether it succeeded.
inline bool shell(const std::string& command) {
  return std::system((command + " 2>/dev/null").c_str()) == 0;
}

/// Returns the reason, key and text of the SampleError that `body` throws, as "REASON KEY: TEXT", or "no error".
template <std::invocable Body>
std::string keyed_error_of(Body&& body) {
  try {
    body();
  } catch (const SampleError& error) {
    return error.reason() + " " + error.key() + ": " + error.what();
  }
  return "no error";
}

/// Returns the reason and text of the SampleError that `body` throws, as "REASON: TEXT", or "no error".
template <std::invocable Body>
std::string sample_error_of(Body&& body) {
  try {
    body();
  } catch (const SampleError& error) {
    return error.reason() + ": " + error.what();
  }
  return "no error";
}
inline std::string sample_error_of(const IndexedSource& source, std::int64_t index) {
  return sample_error_of([&] { source.get(index); });
}

}  // namespace tessera
