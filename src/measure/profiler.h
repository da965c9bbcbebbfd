#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <c10/core/Device.h>

namespace tessera {

/// Records a trace with LibTorch's profiler (Kineto) from construction until stop(). The trace contains the operators of the forward and
/// backward pass, and on a GPU also the kernels and the calls of the driver. Only one profiler can run at a time in a process.
class Profiler {
 public:
  explicit Profiler(const at::Device& device);
  ~Profiler();
  Profiler(const Profiler&) = delete;
  Profiler& operator=(const Profiler&) = delete;

  /// Starts a bar with this name in the trace. It covers the operators that run until end_mark().
  void mark(const std::string& name);
  void end_mark();
  void stop();
  bool stopped() const;
  /// Writes the trace of a stopped profiler atomically in Chrome's trace format. Throws UserError if it cannot be written.
  void save(const std::string& path) const;

  /// The total time and the number of calls of one operator or kernel.
  struct Share {
    std::string name;
    double seconds = 0;
    std::int64_t calls = 0;
  };
  /// Returns the time of each operation that a stopped profiler recorded, the longest time first. On a GPU, the operations are kernels and
  /// copies. On the CPU, they are operators, and their time excludes the operators that they call.
  std::vector<Share> shares() const;
  /// Returns how often the host waited for the GPU between mark() and end_mark(); 0 on the CPU. The profiler must be stopped.
  std::int64_t host_waits() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera
