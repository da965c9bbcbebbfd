#pragma once

#include <stdexcept>

namespace tessera {

/// Thrown when something outside the program failed, such as another rank or the network, and the user's input is not to blame. The message
/// is one line that says what failed and where; run_program prints "NAME: text" and exits with code 1.
class JobError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace tessera
