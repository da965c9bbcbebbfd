#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/ivalue.h>
#include <c10/util/ArrayRef.h>

namespace tessera {

/// Counts the floating-point operations of everything that runs while the object exists, in forward and backward passes. It counts matrix
/// products (2 per multiply-add), convolutions, fused attention (two products, and five in the backward pass) and the products inside our
/// own kernels. It does not count element-wise work, norms and softmax.
class FlopCounter {
 public:
  FlopCounter();
  ~FlopCounter();
  FlopCounter(const FlopCounter&) = delete;
  FlopCounter& operator=(const FlopCounter&) = delete;
  double flops() const;
  /// Returns the number of operations that only repeat earlier operations. These are all operations under a Recomputing object, and the
  /// forward operations that fused attention and grouping repeat in their backward passes. flops() - recomputed() is the cost of the model
  /// itself (Chowdhery et al. 2022, PaLM, appendix B).
  double recomputed() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Formats a number of operations, for example "12.30 GFLOPs".
std::string format_flops(double flops);

/// Thrown by an allocation that would exceed the limit of a MemoryMeter.
class MemoryLimitExceeded : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// While the object exists, measures the tensor bytes that are allocated by this thread, by the operators that it calls, and by the
/// autograd threads that work for it. With a limit, an allocation on the CPU that would exceed it throws MemoryLimitExceeded.
class MemoryMeter {
 public:
  explicit MemoryMeter(std::optional<std::int64_t> limit = std::nullopt);
  ~MemoryMeter();
  MemoryMeter(const MemoryMeter&) = delete;
  MemoryMeter& operator=(const MemoryMeter&) = delete;
  std::int64_t held() const;  // bytes that are allocated and not freed
  std::int64_t peak() const;
  std::vector<double> changes() const;  // all allocations (bytes, positive) and frees (negative), in order

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Returns the floating-point operations of the matrix products inside one call of one of Tessera's own operators (tessera::...), if the
/// call runs a kernel. Returns nothing for other operators, and nothing if the operator is composed of LibTorch's operators, because those
/// are counted separately.
std::optional<std::int64_t> operator_flops(std::string_view name, c10::ArrayRef<const c10::IValue> inputs);

/// Returns how many of the operations counted by operator_flops() repeat products of the forward pass; 0 for operators that repeat none.
std::int64_t operator_recomputed_flops(std::string_view name, c10::ArrayRef<const c10::IValue> inputs);

}  // namespace tessera
