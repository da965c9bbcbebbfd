#pragma once

#include <concepts>
#include <string>

#include <tessera/base/error.h>

namespace tessera {

/// Returns the message of the `Expected` exception that `body` throws, or "no error". Other exceptions pass through.
template <class Expected = UserError, std::invocable Body>
std::string error_of(Body&& body) {
  try {
    body();
  } catch (const Expected& error) {
    if constexpr (requires { error.what_without_backtrace(); }) return error.what_without_backtrace();  // c10::Error
    return error.what();
  }
  return "no error";
}

}  // namespace tessera
