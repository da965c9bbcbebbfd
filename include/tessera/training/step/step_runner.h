#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <tessera/distributed/gradient_reducer.h>
#include <tessera/distributed/heartbeat.h>
#include <tessera/training/run/training_run.h>
#include <tessera/training/step/batch_upload.h>
#include <tessera/training/step/step_graph.h>

namespace tessera {

/// The reducer for what the optimizer trains, as `distributed` says.
GradientReducer make_reducer(const TrainingRun& run, const Config& config, const ProcessGroup& group);

/// Batches that each rank's update takes: `accumulation` of each source that gives its own.
std::int64_t micro_batches(const Config& config, const TrainingRun& run);

/// What one step has computed, before its update.
struct AccumulatedLosses {
  std::int64_t step = 0;          // updates done after it
  DataPosition begin;             // this rank's position before its first batch
  std::vector<std::string> keys;  // this rank's samples
  std::int64_t samples = 0;       // of all ranks
  at::Tensor loss;  // this rank's, mean over the micro-batches; of sources that give batches of their own, the sum
  std::vector<std::pair<std::string, at::Tensor>> terms;
  std::vector<std::pair<std::string, at::Tensor>> statistics;  // Losses::statistics, means over the micro-batches
  std::vector<std::pair<std::string, at::Tensor>> used;        // Losses::used, by any of them
  double wait_seconds = 0;                                     // spent waiting for data
};

/// Forward and backward passes of one step, as one rank of a group: micro-batches, ranks that reach the end of an epoch
/// together, randomness. A step's gradients follow from weights, data position and the step's number alone, so any step
/// can be computed again.
class StepRunner {
 public:
  /// All of them must outlive it. Throws UserError when training.cuda_graph is set where there can be none.
  StepRunner(const Config& config, const ProcessGroup& group, TrainingRun& run, GradientReducer& gradients,
             Heartbeat& heartbeat);

  /// Has each batch shown to `look`, on the CPU, before it is computed.
  void look_at_batches(std::function<void(const Batch&)> look) { look_ = std::move(look); }
  /// Leaves in the parameters the gradients, averaged over ranks, of step number done + 1, times `scale` (float32 scalar on
  /// the device; undefined: 1); `done`: steps made so far. Throws UserError when data fail.
  AccumulatedLosses run(std::int64_t done, const at::Tensor& scale = {});
  /// The same, operator by operator even where a step is recorded and played back otherwise (training.cuda_graph).
  AccumulatedLosses run_operators(std::int64_t done, const at::Tensor& scale = {});

 private:
  AccumulatedLosses run(std::int64_t done, const at::Tensor& scale, StepGraph* graph);
  struct ReadBatch {
    Batch batch;
    StepContext context;
    std::string source;  // that gave it, where an update takes batches of each; else empty
  };
  /// The next ones of the step: all of them where the objective looks ahead, which sees them then.
  std::vector<ReadBatch> read(std::int64_t count, const AccumulatedLosses& result);
  Losses compute(const ReadBatch& given, std::int64_t index, const at::Tensor& scale, StepGraph* graph,
                 AccumulatedLosses& result);
  /// Terms and statistics are told apart by source.
  void add_losses(const Losses& losses, const std::string& source, AccumulatedLosses& result) const;
  /// The loader's next batch of the epoch, and of the source in it, that all ranks have reached.
  Batch next_batch();

  const Config& config_;
  const ProcessGroup& group_;
  TrainingRun& run_;
  GradientReducer& gradients_;
  Heartbeat& heartbeat_;
  BatchUpload upload_;
  std::function<void(const Batch&)> look_;
  std::unique_ptr<StepGraph> graph_;  // null: each step operator by operator
};

/// Keys of what is random of this rank's rows in a micro-batch, from (seed, step, place in the step's global batch)
/// alone (models/per_sample_rng.h): ranks take turns in the order of the samples, as RankSlice says.
at::Tensor step_row_keys(std::int64_t seed, std::int64_t step, std::int64_t micro_batch, std::int64_t batch_size,
                         const ProcessGroup& group);

/// The trained steps' generator seed: from (seed, step, index of the micro-batch, rank) alone.
std::uint64_t step_seed(std::int64_t seed, std::int64_t step, std::int64_t micro_batch, int rank = 0);

}  // namespace tessera
