#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <tessera/training/config/config.h>
#include <tessera/training/run/training_run.h>

namespace tessera {

/// Share of a device's memory that a plan may take; the rest is for what it cannot see: gaps between blocks, libraries'
/// own buffers, the program itself.
inline constexpr double kUsableMemory = 0.9;

/// For whom a plan is made.
struct PlanSettings {
  int rank = 0, ranks = 1;     // of the job
  int ranks_here = 1;          // processes that share this machine's memory
  int started = 1;             // of them, those that hold their weights already
  std::int64_t allocated = 0;  // bytes that this process holds beside weights, optimizer and averages (buckets)
  std::optional<std::int64_t> available;  // bytes to plan for; none: what the device has
  // Measure the loss with at most so many, or two of its chunks; 0: with as many as take a second or so.
  std::int64_t most_loss_samples = 0;
};

/// Where one rank's memory goes, in bytes, and what a step computes.
struct MemoryPlan {
  int ranks = 1;
  std::int64_t batch = 0, micro_batch = 0;  // samples of a rank; of those, what the towers see at a time

  // there from start to end
  std::int64_t weights = 0, optimizer = 0;
  std::int64_t average = 0;     // averaged weights, a teacher's included
  std::int64_t buckets = 0;     // of the gradients' reduction
  std::int64_t checkpoint = 0;  // the copy that is written while training goes on, in the host's memory
  std::int64_t ready = 0;       // batches kept ready by the loader, in the host's memory
  // for a time
  std::int64_t gradients = 0;
  std::int64_t data = 0;         // the batch itself
  std::int64_t activations = 0;  // what the towers keep of a micro-batch for their backward pass
  std::int64_t features = 0;     // of the whole batch, where it is larger than a micro-batch
  std::int64_t loss = 0;         // the most that the loss needs beyond the features: their gradients, similarities, ...

  std::int64_t peak = 0;       // of a step, with what is there from start to end; host memory apart
  std::string peak_phase;      // where the peak is: "the loss"
  bool loss_measured = false;  // the loss was measured at this batch size; otherwise extrapolated

  bool gpu = false, refused = false;  // refused: the plan fits, but not when it was tried
  std::int64_t available = 0;         // on the device, to this rank
  std::int64_t host_available = 0;    // on the host, to this rank

  double forward_flops = 0, total_flops = 0;  // of the whole batch; what is computed again counts again
  // Of one sample in the towers' forward pass: made, and avoided (AvoidedFlops).
  double tower_flops = 0, avoided_flops = 0;
  std::int64_t text_tokens = 0;         // of the longest text in the pass that it was foretold from, 0: it has none;
  std::int64_t samples = 0;             // samples of that pass,
  double seconds = 0, sample_loss = 0;  // which took so long, forward and backward, and had this loss

  std::int64_t host() const { return checkpoint + ready; }
  /// What must find room on the device: on a CPU the host's share as well.
  std::int64_t total() const { return gpu ? peak : peak + host(); }
  bool fits() const;
};

/// Foretells a step of the run's whole batch from passes of a few samples, real ones where the run has data. The
/// towers' cost grows linearly with the samples, the loss's as a polynomial of degree 2 (PassCost). The loss is
/// measured with twice as many samples until that takes too long, so that what can be measured is not extrapolated; one
/// that works in chunks, where that takes seconds, until these are in effect.
/// training.micro_batch auto: the plan with the most samples at a time that fits, of the batch, its half, third,
/// quarter, sixth, eighth, twelfth, ...; on a GPU, where running out of memory is an error that can be caught, after a
/// try; with one sample at a time if none does. Leaves weights, running averages and the data's position as they are,
/// and gradients undefined. Throws what an allocator throws when even a few samples find no room.
MemoryPlan plan_memory(TrainingRun& run, const Config& config, const PlanSettings& settings = {});

/// The plan as lines for the terminal, with what to do where it does not fit.
std::string to_text(const MemoryPlan& plan, const Config& config);

/// "12.3 GiB of 16.0 GiB, highest in the loss: weights 0.6 GiB, ...": for the log and for messages.
std::string summary(const MemoryPlan& plan);

/// Settings that would lower this plan's peak, most useful first: "training.micro_batch: auto".
std::vector<std::string> ways_out(const MemoryPlan& plan, const Config& config);

}  // namespace tessera
