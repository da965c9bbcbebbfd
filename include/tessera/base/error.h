#pragma once

#include <functional>
#include <sstream>
#include <stdexcept>
#include <string>

namespace tessera {

/// A mistake of the user's (configuration, files, arguments): one line that says where, what was expected, what came, and what
/// to do. Programs print it and leave with exit code 2; see run_program.
class UserError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Joins all arguments into one string, as c10::str does, without LibTorch's headers.
template <class... Parts>
std::string concat(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

/// Throws a UserError made of all the parts.
template <class... Parts>
[[noreturn]] void user_error(const Parts&... parts) {
  throw UserError(concat(parts...));
}

/// Runs the body of a program and turns what it throws into an exit code: UserError -> "NAME: text" on stderr and 2; anything
/// else -> "NAME: internal error: text" and 1. Returns the body's own value otherwise.
int run_program(const std::string& name, const std::function<int()>& body);

}  // namespace tessera
