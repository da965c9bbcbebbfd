#pragma once

#include <string>
#include <utility>

namespace tessera::kernels {

/// The outcome of a kernel call. Kernels do not throw. The caller (src/ops) turns a failure into its own kind of error.
class [[nodiscard]] Status {
 public:
  Status() = default;
  static Status failure(std::string message) {
    Status status;
    status.message_ = std::move(message);
    return status;
  }
  bool ok() const { return message_.empty(); }
  /// A message of one line that names the argument, the expected value and the actual value. Empty if ok().
  const std::string& message() const { return message_; }

 private:
  std::string message_;
};

}  // namespace tessera::kernels
