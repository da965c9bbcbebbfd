#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "src/distributed/gradient_reducer.h"
#include "src/distributed/heartbeat.h"
#include "src/training/run/training_run.h"
#include "src/training/step/batch_upload.h"
#include "src/training/step/step_graph.h"

namespace tessera {

/// Makes the gradient reducer for the optimizer's parameters, with the settings in `distributed`.
GradientReducer make_reducer(const TrainingRun& run, const Config& config, const ProcessGroup& group);

/// Returns the number of batches in each rank's update: `accumulation`, multiplied by the number of sources if each source has separate
/// batches.
std::int64_t micro_batches(const Config& config, const TrainingRun& run);

/// The results of one step, before its update.
struct AccumulatedLosses {
  std::int64_t step = 0;          // number of updates of the run, including this step's
  DataPosition begin;             // this rank's position before its first batch
  std::vector<std::string> keys;  // keys of this rank's samples
  std::int64_t samples = 0;       // number of samples of all ranks
  at::Tensor loss;  // this rank's loss: the mean over the micro-batches, summed over sources with separate batches
  std::vector<std::pair<std::string, at::Tensor>> terms;
  std::vector<std::pair<std::string, at::Tensor>> statistics;  // Losses::statistics, averaged over the micro-batches
  std::vector<std::pair<std::string, at::Tensor>> used;        // Losses::used, merged over the micro-batches
  double wait_seconds = 0;                                     // seconds spent waiting for data
};

/// Computes the forward and backward passes of a step on one rank of a group. It reads the micro-batches, makes the ranks end an
/// epoch together, and seeds randomness. A step's gradients depend only on the weights, the data position and the step number, so
/// any step can be recomputed.
class StepRunner {
 public:
  /// The references must outlive this object. Throws UserError if training.cuda_graph is set but not possible here.
  StepRunner(const Config& config, const ProcessGroup& group, TrainingRun& run, GradientReducer& gradients,
             Heartbeat& heartbeat);

  /// Sets a function that is called with each batch that was read, while the batch is still on the CPU.
  void look_at_batches(std::function<void(const Batch&)> look) { look_ = std::move(look); }
  /// Computes the step that follows `done` steps. Leaves the gradients, averaged over ranks and multiplied by `scale`, in the parameters.
  /// `scale` is a float32 scalar on the device; undefined means 1. Throws UserError if data cannot be read.
  AccumulatedLosses run(std::int64_t done, const at::Tensor& scale = {});
  /// Does the same as run(), but never uses a recorded graph (training.cuda_graph).
  AccumulatedLosses run_operators(std::int64_t done, const at::Tensor& scale = {});

 private:
  AccumulatedLosses run(std::int64_t done, const at::Tensor& scale, StepGraph* graph);
  struct ReadBatch {
    Batch batch;
    StepContext context;
    std::string source;  // the batch's source, if an update has separate batches for each source; otherwise empty
  };
  /// Reads the step's next batch. If the objective looks ahead, reads all batches of the step and shows them to the objective.
  std::vector<ReadBatch> read(std::int64_t count, const AccumulatedLosses& result);
  Losses compute(const ReadBatch& given, std::int64_t index, const at::Tensor& scale, StepGraph* graph,
                 AccumulatedLosses& result);
  /// Adds the losses of a micro-batch. Terms and statistics are kept separately per source.
  void add_losses(const Losses& losses, const std::string& source, AccumulatedLosses& result) const;
  /// Returns the loader's next batch. If another rank has reached a later epoch or source, skips the batches before that epoch or source.
  Batch next_batch();

  const Config& config_;
  const ProcessGroup& group_;
  TrainingRun& run_;
  GradientReducer& gradients_;
  Heartbeat& heartbeat_;
  BatchUpload upload_;
  std::function<void(const Batch&)> look_;
  std::unique_ptr<StepGraph> graph_;  // null if steps are not recorded
};

/// Returns the keys of per-row randomness for this rank's rows in a micro-batch (models/per_sample_rng.h). A key depends only on (seed,
/// step, position in the step's global batch). The samples of the global batch are dealt to the ranks in turn (RankSlice).
at::Tensor step_row_keys(std::int64_t seed, std::int64_t step, std::int64_t micro_batch, std::int64_t batch_size,
                         const ProcessGroup& group);

/// Returns the generator seed for a micro-batch, which depends only on (seed, step, index of the micro-batch, rank).
std::uint64_t step_seed(std::int64_t seed, std::int64_t step, std::int64_t micro_batch, int rank = 0);

}  // namespace tessera
