#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/training/run/training_run.h"
#include <tessera/training/config/config.h>

namespace tessera {

/// The share of a device's memory that a plan may use. The rest is for memory use that the plan cannot predict: fragmentation,
/// buffers of libraries, and the program itself.
inline constexpr double kUsableMemory = 0.9;

/// The rank and the device that a plan is made for.
struct PlanSettings {
  int rank = 0, ranks = 1;     // this rank, and the number of ranks of the job
  int ranks_here = 1;          // number of processes that share this machine's memory
  int started = 1;             // number of these processes that already hold their weights
  std::int64_t allocated = 0;  // bytes that this process already holds for gradient buckets, in addition to weights, optimizer and averages
  std::optional<std::int64_t> available;  // number of bytes to plan for; nullopt: the device's memory
  // The loss is measured with at most this many samples; 0: as many samples as take about a second. A loss that works in chunks may be
  // measured with up to two chunks, even if two chunks have more samples than this limit.
  std::int64_t most_loss_samples = 0;
};

/// The predicted memory use of one rank, in bytes, and the FLOPs of a step.
struct MemoryPlan {
  int ranks = 1;
  std::int64_t batch = 0, micro_batch = 0;  // samples per rank, and samples that the towers process at a time

  // The next six members are permanent memory, which stays allocated between steps.
  std::int64_t weights = 0, optimizer = 0;
  std::int64_t average = 0;     // averaged weights, including a teacher's
  std::int64_t buckets = 0;     // with several ranks: buffers of the gradient reduction, which contain the gradients
  std::int64_t checkpoint = 0;  // in host memory: a copy of the training state, from which a checkpoint is written in the background
  std::int64_t ready = 0;       // the batches that the loader keeps ready, in host memory
  // The next five members are temporary memory.
  std::int64_t gradients = 0;    // 0 with several ranks
  std::int64_t data = 0;         // the batch itself
  std::int64_t activations = 0;  // tensors that the towers keep for the backward pass of a micro-batch
  std::int64_t features = 0;     // features of the whole batch; 0 if micro_batch is the whole batch
  std::int64_t loss = 0;         // peak memory of the loss beyond the features themselves: gradients of the features, similarities, ...

  std::int64_t peak = 0;       // peak of a step, including permanent memory but not host memory
  std::string peak_phase;      // where the peak occurs, such as "the loss"
  bool loss_measured = false;  // true: the loss was measured at this batch size; false: extrapolated

  bool gpu = false, refused = false;  // gpu: the device is a GPU; refused: by the prediction the plan fits, but a trial ran out of memory
  std::int64_t available = 0;         // device memory available to this rank
  std::int64_t host_available = 0;    // host memory available to this rank

  double forward_flops = 0, total_flops = 0;  // FLOPs of the whole batch, including recomputation
  // FLOPs of one sample in the towers' forward pass: the FLOPs performed, and the FLOPs avoided (AvoidedFlops).
  double tower_flops = 0, avoided_flops = 0;
  // The prediction is based on several passes over a few samples. The next members describe the first pass.
  std::int64_t text_tokens = 0;         // length of the longest text in the pass; 0 if it has no texts
  std::int64_t samples = 0;             // number of samples in the pass
  double seconds = 0, sample_loss = 0;  // duration of the pass (forward and backward) in seconds, and its loss

  std::int64_t host() const { return checkpoint + ready; }
  /// Returns the bytes that must fit on the device; on a CPU they include host().
  std::int64_t total() const { return gpu ? peak : peak + host(); }
  bool fits() const;
};

/// Predicts the cost of a step on the run's whole batch from passes over a few samples (real samples if the run has data). The
/// towers' cost is linear in the number of samples; the loss's cost is a polynomial of degree 2 (PassCost). The loss is measured with more
/// and more samples, twice as many each time, and is extrapolated only if a measurement takes too long before the whole batch is reached.
/// If the loss works in chunks and measuring it at full size would take seconds, it is measured for one to two chunks of samples, so that
/// the measurements show the effect of the chunks. With training.micro_batch auto, tries the batch and its half, third, quarter, sixth,
/// eighth, twelfth, ... as micro-batches, and returns the plan with the largest one that fits; if none fits, the plan with one sample at a
/// time. On a GPU, where running out of memory can be caught, the plan is also tried out. Does not change weights, running averages or the
/// data position; leaves gradients undefined. Throws the allocator's exception if even a few samples do not fit.
MemoryPlan plan_memory(TrainingRun& run, const Config& config, const PlanSettings& settings = {});

/// Returns the plan as lines for the terminal, with remedies if it does not fit.
std::string to_text(const MemoryPlan& plan, const Config& config);

/// Returns a summary for the log and for messages, such as "12.3 GiB of 16.0 GiB, highest in the loss: weights 0.6 GiB, ...".
std::string summary(const MemoryPlan& plan);

/// A setting `chunk` of an objective.
struct ChunkSetting {
  std::string path;                   // its path, such as objective.chunk
  config::SamplesAtATime chunk;       // null: the loss processes the whole batch at once
};

/// Returns the `chunk` settings of the objective, including those of the objectives in a weighted sum.
std::vector<ChunkSetting> chunk_settings(const Config& config);

/// The share of a device's memory that similarities may take before `chunk: auto` chooses tiles, and the size of these tiles.
inline constexpr double kSimilarityShare = 0.1;
inline constexpr std::int64_t kPairsPerTile = 256;

/// Replaces every `chunk: auto` of the objective. Without tiles, a rank holds about eight float32 numbers for each of its batch x global
/// batch pairs, and more with objectives on tokens: 16 per patch with pacl, 13 per patch and token with gloria, and on several ranks 1.25 per
/// patch and per token with filip, and the tokens of all texts with their gradients. If this is more than kSimilarityShare of `memory` bytes,
/// the number becomes kPairsPerTile, otherwise null. Returns a line for the log that says what was chosen; empty if no chunk is auto.
std::string settle_chunks(Config& config, int ranks, std::int64_t memory);
/// Does the same for the ranks of a group, which all choose by the smallest memory of their devices. Collective if a chunk is auto.
std::string settle_chunks(Config& config, const ProcessGroup& group);

/// Returns settings that would lower this plan's peak, such as "training.micro_batch: auto", most useful first.
std::vector<std::string> ways_out(const MemoryPlan& plan, const Config& config);

}  // namespace tessera
