#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "kernels/flops_regularizer/flops_regularizer.h"
#include "kernels/sparsify_group/sparsify_group.h"

namespace tessera::kernels::bench {

/// What the benchmark runs on: the CPU, or a GPU.
class Machine {
 public:
  virtual ~Machine() = default;
  virtual std::string name() const = 0;
  /// `bytes` of memory there, filled with small random values of `type`; lives as long as the machine.
  virtual void* random(std::size_t bytes, DataType type) = 0;
  /// Gives all of it back.
  virtual void release() = 0;
  /// Seconds that one call takes: the median of several after a warm-up.
  virtual double seconds(const std::function<Status()>& call) = 0;
  /// Bytes read and written per second by a large copy.
  virtual double copy_bandwidth() = 0;

  virtual std::size_t workspace(const SparsifyGroupProblem& problem, Pass pass) = 0;
  virtual Status run(const SparsifyGroupForward& arguments) = 0;
  virtual Status run(const SparsifyGroupBackward& arguments) = 0;
  virtual std::size_t workspace(std::int64_t rows, std::int64_t columns) = 0;
  virtual Status run(const FlopsColumnSums& arguments) = 0;
  virtual Status run(const FlopsFromSums& arguments) = 0;
  virtual Status run(const FlopsBackward& arguments) = 0;
};

std::unique_ptr<Machine> cpu_machine(int threads);
/// Null without a GPU (or a build for one).
std::unique_ptr<Machine> gpu_machine();

}  // namespace tessera::kernels::bench
