#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace tessera {

/// Counts floating-point operations of everything that runs while it lives, forward and backward: matrix products (2
/// per multiply-add), convolutions, fused attention (the two products; its backward the five that it executes) and the
/// products inside our own kernels.
/// Element-wise work, norms and softmax are not counted.
class FlopCounter {
 public:
  FlopCounter();
  ~FlopCounter();
  FlopCounter(const FlopCounter&) = delete;
  FlopCounter& operator=(const FlopCounter&) = delete;
  double flops() const;
  /// The part of them that only repeats what was computed before: under a Recomputing, and inside the backward passes
  /// of fused attention and grouping. flops() - recomputed() is what the model itself takes (Chowdhery et al. 2022,
  /// PaLM, appendix B).
  double recomputed() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// "12.30 GFLOPs".
std::string format_flops(double flops);

/// What a MemoryMeter with a limit throws out of the allocation that would have exceeded it.
class MemoryLimitExceeded : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Bytes of tensors allocated by this thread, the operators it calls and the autograd threads that work for it, while it
/// lives. With a limit, an allocation
/// on the CPU that would bring them above it is not made and throws MemoryLimitExceeded.
class MemoryMeter {
 public:
  explicit MemoryMeter(std::optional<std::int64_t> limit = std::nullopt);
  ~MemoryMeter();
  MemoryMeter(const MemoryMeter&) = delete;
  MemoryMeter& operator=(const MemoryMeter&) = delete;
  std::int64_t held() const;  // allocated and not freed
  std::int64_t peak() const;
  std::vector<double> changes() const;  // bytes taken, and negative: given back, in order

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera
