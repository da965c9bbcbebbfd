#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <tessera/training/config/config.h>
#include <tessera/training/run/training_run.h>

namespace tessera {

/// Share of a device's memory that a plan may use. The rest is for memory that the plan cannot predict: fragmentation, libraries'
/// own buffers, the program itself.
inline constexpr double kUsableMemory = 0.9;

/// The rank and the device that a plan is made for.
struct PlanSettings {
  int rank = 0, ranks = 1;     // of the job
  int ranks_here = 1;          // processes that share this machine's memory
  int started = 1;             // how many of them already hold their weights
  std::int64_t allocated = 0;  // bytes that this process holds in addition to weights, optimizer and averages (buckets)
  std::optional<std::int64_t> available;  // bytes to plan for; none: the device's memory
  // Measure the loss with at most this many samples, or two of its chunks; 0: with as many as take about a second.
  std::int64_t most_loss_samples = 0;
};

/// How one rank uses its memory, in bytes, and what a step computes.
struct MemoryPlan {
  int ranks = 1;
  std::int64_t batch = 0, micro_batch = 0;  // samples of a rank, and how many of them the towers process at a time

  // permanent
  std::int64_t weights = 0, optimizer = 0;
  std::int64_t average = 0;     // averaged weights, including a teacher's
  std::int64_t buckets = 0;     // buffers of the gradient reduction
  std::int64_t checkpoint = 0;  // the copy that is written in the background, in host memory
  std::int64_t ready = 0;       // batches that the loader keeps ready, in host memory
  // temporary
  std::int64_t gradients = 0;
  std::int64_t data = 0;         // the batch itself
  std::int64_t activations = 0;  // what the towers keep for the backward pass of a micro-batch
  std::int64_t features = 0;     // features of the whole batch, if it is larger than a micro-batch
  std::int64_t loss = 0;         // the peak of the loss in addition to the features: their gradients, similarities, ...

  std::int64_t peak = 0;       // of a step, including permanent memory but not host memory
  std::string peak_phase;      // where the peak occurs: "the loss"
  bool loss_measured = false;  // the loss was measured at this batch size; otherwise extrapolated

  bool gpu = false, refused = false;  // refused: the plan fits by calculation, but trying it ran out of memory
  std::int64_t available = 0;         // device memory available to this rank
  std::int64_t host_available = 0;    // host memory available to this rank

  double forward_flops = 0, total_flops = 0;  // of the whole batch; recomputation counts again
  // FLOPs of one sample in the towers' forward pass: performed, and avoided (AvoidedFlops).
  double tower_flops = 0, avoided_flops = 0;
  // The pass that the prediction is based on:
  std::int64_t text_tokens = 0;         // length of its longest text, 0: it has no texts
  std::int64_t samples = 0;             // number of samples
  double seconds = 0, sample_loss = 0;  // its time, forward and backward, and its loss

  std::int64_t host() const { return checkpoint + ready; }
  /// Returns the bytes that must fit on the device; on a CPU this includes the host's share.
  std::int64_t total() const { return gpu ? peak : peak + host(); }
  bool fits() const;
};

/// Predicts the cost of a step of the run's whole batch from passes of a few samples (real samples if the run has data). The towers'
/// cost is linear in the samples, the loss's cost a polynomial of degree 2 (PassCost). The loss is measured with twice as many
/// samples each time until that takes too long, so that extrapolation is a last resort. If the loss works in chunks and that would
/// take seconds, it is measured only until the chunks have an effect.
/// With training.micro_batch auto, returns the plan that fits with the most samples at a time, out of the batch, its half, third,
/// quarter, sixth, eighth, twelfth, ...; if none fits, the plan with one sample at a time. On a GPU, where running out of memory
/// can be caught, the plan is also tried. Does not change weights, running averages and the data's position; leaves gradients
/// undefined. Throws the allocator's exception if even a few samples do not fit.
MemoryPlan plan_memory(TrainingRun& run, const Config& config, const PlanSettings& settings = {});

/// Returns the plan as lines for the terminal, with remedies if it does not fit.
std::string to_text(const MemoryPlan& plan, const Config& config);

/// Returns a summary for the log and for messages: "12.3 GiB of 16.0 GiB, highest in the loss: weights 0.6 GiB, ...".
std::string summary(const MemoryPlan& plan);

/// Returns settings that would lower this plan's peak, most useful first: "training.micro_batch: auto".
std::vector<std::string> ways_out(const MemoryPlan& plan, const Config& config);

}  // namespace tessera
