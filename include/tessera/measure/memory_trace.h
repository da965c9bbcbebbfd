#pragma once

#include <functional>
#include <vector>

namespace tessera {

/// The memory of tensors that a piece of work took and gave back, in order.
class MemoryTrace {
 public:
  MemoryTrace() = default;
  /// changes: bytes, negative when given back.
  explicit MemoryTrace(std::vector<double> changes) : changes_(std::move(changes)) {}

  /// Runs the body and notes every allocation of this thread, of the operators it calls and of the autograd threads
  /// that work for it.
  static MemoryTrace of(const std::function<void()>& body);

  /// The highest level, in bytes above the start; at least 0.
  double peak() const;
  /// The level at the end; negative when more was given back than taken.
  double held() const;
  const std::vector<double>& changes() const { return changes_; }

 private:
  std::vector<double> changes_;
};

}  // namespace tessera
