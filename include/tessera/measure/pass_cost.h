#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include <tessera/features.h>

namespace tessera {

/// The memory of tensors that a piece of work took and gave back, in order.
class MemoryTrace {
 public:
  MemoryTrace() = default;
  /// changes: bytes, negative when given back.
  explicit MemoryTrace(std::vector<double> changes) : changes_(std::move(changes)) {}
  /// Runs the body and notes what a MemoryMeter sees.
  static MemoryTrace of(const std::function<void()>& body);

  double peak() const;  // the highest level, in bytes above the start; at least 0
  double held() const;  // the level at the end; negative when more was given back than taken
  const std::vector<double>& changes() const { return changes_; }

 private:
  std::vector<double> changes_;
};

/// What a piece of work costs as a function of the number of samples: a polynomial of the given degree through the
/// latest measurements. Exact for a number that was measured.
class CostCurve {
 public:
  explicit CostCurve(std::size_t degree) : degree_(degree) {}

  /// Runs the body, which works on so many samples, and notes its allocations and floating-point operations.
  void measure(std::int64_t samples, const std::function<void()>& body);
  /// A measurement made elsewhere.
  void add(std::int64_t samples, MemoryTrace trace, double flops);

  /// Where the measurements have the same allocations in the same order, which work of one kind does, each allocation
  /// is extrapolated by itself: the peak is right even when it moves to another place of the work. Otherwise the peaks
  /// themselves are, and at least as a straight line goes on. At least one measurement must be there.
  MemoryTrace trace(std::int64_t samples) const;
  double flops(std::int64_t samples) const;
  /// The curve of this work with that of `next` right behind it, which was measured with the same numbers of samples.
  CostCurve followed_by(const CostCurve& next) const;

 private:
  struct Point {
    std::int64_t samples = 0;
    MemoryTrace trace;
    double flops = 0, weight = 0;  // weight: of this point in what is foretold (Lagrange)
  };
  std::vector<Point> weighted(std::int64_t samples, std::size_t degree) const;

  std::size_t degree_;
  std::vector<Point> points_;
};

/// What a forward and a backward pass cost.
struct PassCost {
  explicit PassCost(std::size_t degree) : forward(degree), backward(degree) {}

  CostCurve forward;   // up to the outputs, with what the backward pass needs
  CostCurve backward;  // from there to the gradients

  double flops(std::int64_t samples) const { return forward.flops(samples) + backward.flops(samples); }
  /// Of both, one after the other.
  MemoryTrace trace(std::int64_t samples) const;
};

/// Adds a pass of the towers over a batch to their cost, which is linear in the samples. encode: the towers' forward
/// pass. The gradients of the features are there before the backward pass and are not part of it.
void measure_towers(PassCost& cost, const Batch& batch, const std::function<Features(const Batch&)>& encode);

}  // namespace tessera
