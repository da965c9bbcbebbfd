#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <c10/core/Device.h>

namespace tessera {

/// A trace by LibTorch's profiler (Kineto) from its making until stop(): operators of the forward and the backward pass, on
/// a GPU its kernels and the driver's calls too. One at a time in a process.
class Profiler {
 public:
  explicit Profiler(const at::Device& device);
  ~Profiler();
  Profiler(const Profiler&) = delete;
  Profiler& operator=(const Profiler&) = delete;

  /// A bar above the operators that run until end_mark().
  void mark(const std::string& name);
  void end_mark();
  void stop();
  bool stopped() const;
  /// Of a stopped one, in Chrome's trace format; written aside and renamed. Throws UserError where it cannot be written.
  void save(const std::string& path) const;

  /// What ran under one name.
  struct Share {
    std::string name;
    double seconds = 0;
    std::int64_t calls = 0;
  };
  /// Of a stopped one, by time, the longest first: a GPU's kernels and copies; on the CPU operators without the time of
  /// those that they call.
  std::vector<Share> shares() const;
  /// Of a stopped one: how often the host stood still for the GPU under the marks; 0 on the CPU.
  std::int64_t host_waits() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera
