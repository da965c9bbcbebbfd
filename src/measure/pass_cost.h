#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include <tessera/features.h>

namespace tessera {

/// The allocations and frees of tensor memory during a piece of work, in order.
class MemoryTrace {
 public:
  MemoryTrace() = default;
  /// `changes` holds numbers of bytes, negative for frees.
  explicit MemoryTrace(std::vector<double> changes) : changes_(std::move(changes)) {}
  /// Runs the body and records its allocations with a MemoryMeter.
  static MemoryTrace of(const std::function<void()>& body);

  double peak() const;  // the largest number of allocated bytes, relative to the start; never negative
  double held() const;  // the bytes still allocated at the end, relative to the start; negative if more was freed than allocated
  const std::vector<double>& changes() const { return changes_; }

 private:
  std::vector<double> changes_;
};

/// The cost of a piece of work as a function of the number of samples. It is a polynomial of the given degree through the latest
/// measurements. For a number of samples that was measured, the result is the measurement.
class CostCurve {
 public:
  explicit CostCurve(std::size_t degree) : degree_(degree) {}

  /// Runs the body, which works on `samples` samples, and records its allocations and floating-point operations.
  void measure(std::int64_t samples, const std::function<void()>& body);
  /// Adds a measurement: the trace and the FLOPs of the work on `samples` samples.
  void add(std::int64_t samples, MemoryTrace trace, double flops);

  /// Returns the extrapolated trace. If all measurements have the same number of allocations, each allocation is extrapolated separately.
  /// The peak is then right even if it occurs at a different allocation than in the measurements. Otherwise only held() and peak() are
  /// extrapolated: held() linearly, and peak() by the polynomial or linearly, whichever gives more. Needs at least one measurement.
  MemoryTrace trace(std::int64_t samples) const;
  double flops(std::int64_t samples) const;
  /// Returns the cost of doing this work and then `next`, which was measured with the same numbers of samples.
  CostCurve followed_by(const CostCurve& next) const;

 private:
  struct Point {
    std::int64_t samples = 0;
    MemoryTrace trace;
    double flops = 0, weight = 0;  // `weight` is the point's Lagrange weight in the extrapolation
  };
  std::vector<Point> weighted(std::int64_t samples, std::size_t degree) const;

  std::size_t degree_;
  std::vector<Point> points_;
};

/// The cost of a forward and a backward pass.
struct PassCost {
  explicit PassCost(std::size_t degree) : forward(degree), backward(degree) {}

  CostCurve forward;   // the forward pass up to the outputs, including the tensors kept for the backward pass
  CostCurve backward;  // the backward pass, which starts at the outputs of the forward pass

  double flops(std::int64_t samples) const { return forward.flops(samples) + backward.flops(samples); }
  /// The trace of both passes, one after the other.
  MemoryTrace trace(std::int64_t samples) const;
};

/// Measures a forward and backward pass of the towers over a batch and adds the measurement to `cost`. The cost of towers is linear in the
/// number of samples. `encode` runs the forward pass. The gradients of the features are allocated before the backward pass and are not part
/// of the cost.
void measure_towers(PassCost& cost, const Batch& batch, const std::function<Features(const Batch&)>& encode);

}  // namespace tessera
