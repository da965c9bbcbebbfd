#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include <c10/core/Device.h>

#include <tessera/distributed/process_group.h>
#include <tessera/measure/profiler.h>

namespace tessera {

struct LogSettings;

/// Traces a few steps with LibTorch's profiler (Kineto): each operator of the forward and backward pass with its time, on a GPU also
/// the kernels, in Chrome's trace format. Other steps have no overhead.
class StepProfiler {
 public:
  /// Traces the steps in log.profile to FOLDER/trace_step_0000010.json, with several ranks to FOLDER/trace_step_0000010_rank1.json.
  StepProfiler(const LogSettings& settings, const std::string& folder, const ProcessGroup& group,
               const at::Device& device);
  /// Writes a trace that is still running.
  ~StepProfiler();

  /// Call before and after each step. after() returns the trace's path once it is written. Throws UserError if writing fails.
  void before(std::int64_t step);
  std::optional<std::string> after(std::int64_t step);

 private:
  void save();

  std::optional<std::array<std::int64_t, 2>> steps_;
  std::string path_;
  at::Device device_;
  std::unique_ptr<Profiler> profiler_;  // null: no trace is running
};

}  // namespace tessera
