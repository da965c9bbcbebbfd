#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include <tessera/measure/memory_trace.h>
#include <tessera/training/config/config.h>
#include <tessera/training/memory/memory_plan.h>
#include <tessera/training/run/training_run.h>

namespace tessera {

/// For whom a plan is made.
struct PlanSettings {
  int rank = 0, ranks = 1;     // of the job
  int ranks_here = 1;          // processes that share this machine's memory
  int started = 1;             // of them, those that hold their weights already
  std::int64_t allocated = 0;  // bytes that this process holds beside weights, optimizer and averages (buckets)
  std::optional<std::int64_t> available;  // bytes to plan for; none: what the device has
  std::int64_t most_loss_samples = 0;     // measure the loss with at most so many; 0: as many as take seconds
};

/// Foretells the memory and the arithmetic of a step from passes of a few samples. The towers' cost grows linearly with
/// the samples, the loss's as a polynomial of degree 2; both follow from the allocations seen (CostCurve). The loss is
/// measured with twice as many samples until that takes too long, so that what can be measured is not extrapolated.
/// Leaves weights, running averages and the data's position as they are, and gradients undefined.
class MemoryModel {
 public:
  /// parts and config must outlive it; run.device is where it measures. Throws what an allocator throws when even a
  /// few samples find no room.
  MemoryModel(TrainingRun& run, const Config& config, const PlanSettings& settings);
  ~MemoryModel();

  /// The plan with so many samples of a batch at a time; more than the batch holds: all at once.
  MemoryPlan plan(std::int64_t micro_batch);

  /// Whether a pass of so many samples really finds room: tried on a GPU, where running out of memory is an error that
  /// can be caught; true on the CPU.
  bool fits_when_tried(std::int64_t micro_batch);

  /// Of the whole batch of one rank; what is computed again counts again.
  double forward_flops();
  double total_flops(std::int64_t micro_batch);
  /// One pass over sample_count() samples of the data, forward and backward.
  std::int64_t sample_count() const;
  double sample_loss() const;
  double sample_seconds() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// The plan with the largest number of samples at a time that fits and fits_when_tried: the batch, or its half, third,
/// quarter, sixth, eighth, twelfth, ... None when not even one sample at a time does.
std::optional<MemoryPlan> largest_that_fits(MemoryModel& model, std::int64_t batch);

}  // namespace tessera
