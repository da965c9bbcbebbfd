#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include <c10/core/Device.h>

#include "src/measure/profiler.h"
#include <tessera/distributed/process_group.h>

namespace tessera {

struct LogSettings;

/// Traces a few steps with LibTorch's profiler (Kineto), in Chrome's trace format. A trace has each operator of the forward and
/// backward pass with its time, and on a GPU the kernels. Steps that are not traced have no overhead.
class StepProfiler {
 public:
  /// The setting log.profile chooses the steps. Their trace is written to a file such as FOLDER/trace_step_0000010.json. With several
  /// ranks, each rank writes its own file, such as FOLDER/trace_step_0000010_rank1.json.
  StepProfiler(const LogSettings& settings, const std::string& folder, const ProcessGroup& group,
               const at::Device& device);
  /// If a trace is still running, ends it and writes it.
  ~StepProfiler();

  /// before() must be called before each step, and after() after it. When after() has written the trace, it returns the trace's path.
  /// Throws UserError if writing fails.
  void before(std::int64_t step);
  std::optional<std::string> after(std::int64_t step);

 private:
  void save();

  std::optional<std::array<std::int64_t, 2>> steps_;
  std::string path_;
  at::Device device_;
  std::unique_ptr<Profiler> profiler_;  // null while no trace is running
};

}  // namespace tessera
