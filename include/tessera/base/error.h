#pragma once

#include <functional>
#include <sstream>
#include <stdexcept>
#include <string>

namespace tessera {

/// Thrown when the user made a mistake in the configuration, the files or the arguments. The message is one line that says where, what was
/// expected, what was found, and what to do. Programs print it and exit with code 2; see run_program.
class UserError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Joins all arguments into one string like c10::str, but without LibTorch's headers.
template <class... Parts>
std::string concat(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

/// Throws a UserError with the concatenated parts as its message.
template <class... Parts>
[[noreturn]] void user_error(const Parts&... parts) {
  throw UserError(concat(parts...));
}

/// Runs the body of a program and returns its exit code. Exceptions are printed to stderr: a UserError as "NAME: text" with exit
/// code 2, a JobError or a lack of memory as "NAME: text" with 1, anything else as "NAME: internal error: text" with 1. Stops ignoring
/// SIGCHLD, in case the parent process ignored it, because the kernel would then not report how child processes end.
int run_program(const std::string& name, const std::function<int()>& body);

}  // namespace tessera
