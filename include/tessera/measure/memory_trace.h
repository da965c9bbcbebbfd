#pragma once

#include <cstdint>
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

/// What a piece of work costs as a function of the number of samples, from measurements of a few numbers: a polynomial
/// through the latest of them (of degree 1: the two latest). Where the traces have the same allocations in the same
/// order, which work of one kind does, each allocation is extrapolated by itself and the sum is followed through time;
/// so the peak is right even when it moves to another place of the work. Otherwise the peaks themselves are.
class CostCurve {
 public:
  explicit CostCurve(std::size_t degree) : degree_(degree) {}

  void add(std::int64_t samples, MemoryTrace trace, double flops = 0, double seconds = 0);
  bool empty() const { return points_.empty(); }
  /// Whether this number itself was measured.
  bool measured(std::int64_t samples) const;

  /// Bytes; exact where measured. At least one measurement must be there.
  double peak(std::int64_t samples) const;
  double held(std::int64_t samples) const;
  double flops(std::int64_t samples) const;
  /// Of the latest measurement.
  double seconds() const { return points_.back().seconds; }

 private:
  struct Point {
    std::int64_t samples = 0;
    MemoryTrace trace;
    double flops = 0, seconds = 0;
  };
  /// The points that decide, and each one's weight (Lagrange).
  std::vector<std::pair<const Point*, double>> weights(std::int64_t samples) const;
  MemoryTrace trace(const std::vector<std::pair<const Point*, double>>& weights) const;
  double number(std::int64_t samples, const std::function<double(const MemoryTrace&)>& of) const;

  std::size_t degree_;
  std::vector<Point> points_;
};

}  // namespace tessera
