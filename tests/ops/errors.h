#pragma once

#include <string>

#include <c10/util/Exception.h>

namespace tessera {

/// Returns the message of the c10::Error that `call` throws, or "no error".
template <class Call>
std::string error_of(const Call& call) {
  try {
    call();
  } catch (const c10::Error& caught) {
    return caught.what_without_backtrace();
  }
  return "no error";
}

}  // namespace tessera
