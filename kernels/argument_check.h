#pragma once

#include <cstdint>
#include <string>

#include "kernels/status.h"

namespace tessera::kernels {

/// Checks the arguments of a kernel one after another and keeps the first mistake. After a mistake, further checks have
/// no effect.
class ArgumentCheck {
 public:
  explicit ArgumentCheck(const char* kernel) : kernel_(kernel) {}

  ArgumentCheck& at_least(const char* name, std::int64_t least, std::int64_t value) {
    return require(value >= least, name, " must be at least " + std::to_string(least) + ", but is " + std::to_string(value));
  }
  ArgumentCheck& at_most(const char* name, std::int64_t most, std::int64_t value) {
    return require(value <= most, name, " must be at most " + std::to_string(most) + ", but is " + std::to_string(value));
  }
  ArgumentCheck& present(const char* name, const void* pointer) {
    return require(pointer != nullptr, name, " is a null pointer");
  }
  /// Checks that the rows of a matrix do not overlap.
  ArgumentCheck& long_enough(const char* name, std::int64_t row_stride, std::int64_t columns) {
    return require(row_stride >= columns, std::string("the row stride of ") + name,
                   " is " + std::to_string(row_stride) + ", shorter than a row of " + std::to_string(columns) + " elements");
  }
  /// If `right` is false, records an error about the argument called `name`. `mistake` says what is wrong: " must be above 0, but is -1".
  ArgumentCheck& require(bool right, const std::string& name, const std::string& mistake) {
    if (!right && status_.ok()) status_ = Status::failure(std::string(kernel_) + ": " + name + mistake);
    return *this;
  }

  bool ok() const { return status_.ok(); }
  const Status& status() const { return status_; }

 private:
  const char* kernel_;
  Status status_;
};

}  // namespace tessera::kernels
