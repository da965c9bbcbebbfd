#pragma once

#include <stdexcept>

namespace tessera {

/// Something outside the program failed, and the user's input is not to blame: another rank, a network. The message is one line
/// that says what and where; run_program prints "NAME: text" and exits with code 1.
class JobError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace tessera
