#pragma once

#include <cstdint>
#include <memory>

namespace tessera {

/// Counts floating-point operations of everything that runs while it lives, forward and backward: matrix products (2
/// per multiply-add), convolutions and fused attention (the two products; its backward the five that it executes).
/// Element-wise work, norms and softmax are not counted.
class FlopCounter {
 public:
  FlopCounter();
  ~FlopCounter();
  FlopCounter(const FlopCounter&) = delete;
  FlopCounter& operator=(const FlopCounter&) = delete;
  double flops() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Bytes of tensors allocated by this thread (and the operators it calls) while it lives.
class MemoryMeter {
 public:
  MemoryMeter();
  ~MemoryMeter();
  MemoryMeter(const MemoryMeter&) = delete;
  MemoryMeter& operator=(const MemoryMeter&) = delete;
  std::int64_t held() const;  // allocated and not freed
  std::int64_t peak() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera
