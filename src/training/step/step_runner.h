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
#include "src/training/step/shared_batches.h"
#include "src/training/step/step_graph.h"
#include "src/training/step/step_pacer.h"

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
  std::vector<DeviceSeconds> forward;  // of the towers' forward passes, except those of recorded steps
  bool updated = false;  // whether the recorded step has also made the update
};

/// What the end of a step has computed.
struct StepUpdate {
  at::Tensor numbers;   // float32 [n], step_numbers()
  at::Tensor decision;  // float32 scalar, NonFiniteGuard::check()
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
  /// The batches of all ranks. Only this object may move the run's loader.
  SharedBatches& batches() { return batches_; }
  /// The end of a step after its backward pass: clips the gradients and updates the weights with the given numbers, but does not count the
  /// update (Optimizer::update_weights). Must not read anything back from the device.
  using Update = std::function<StepUpdate(const AccumulatedLosses& losses, const UpdateInputs& inputs)>;
  /// Lets recorded steps include their end, which is possible for updates of one batch by an optimizer that can be recorded.
  void record_update(Update update) { update_ = std::move(update); }
  /// Whether run() will make the update, given UpdateInputs::numbers.
  bool records_update() const;
  /// The results of the update that run() has made. The next step overwrites them.
  const StepUpdate& recorded_update() const { return updated_; }

  /// Computes the step that follows `done` steps. Leaves the gradients, averaged over ranks and multiplied by `scale`, in the parameters.
  /// `scale` is a float32 scalar on the device; undefined means 1. If records_update(), `numbers` (UpdateInputs::numbers) may be defined, and
  /// run() then also makes the update. Throws UserError if data cannot be read.
  AccumulatedLosses run(std::int64_t done, const at::Tensor& scale = {}, const at::Tensor& numbers = {});
  /// Does the same as run(), but never uses a recorded graph (training.cuda_graph).
  AccumulatedLosses run_operators(std::int64_t done, const at::Tensor& scale = {});

 private:
  AccumulatedLosses run(std::int64_t done, const at::Tensor& scale, const at::Tensor& numbers, StepGraph* graph);
  /// Creates the graph that records a step.
  std::unique_ptr<StepGraph> make_graph();
  struct ReadBatch {
    Batch batch;
    StepContext context;
    std::string source;  // the batch's source, if an update has separate batches for each source; otherwise empty
  };
  /// Reads the step's next batch. If the objective looks ahead, reads all batches of the step and shows them to the objective.
  std::vector<ReadBatch> read(std::int64_t count, const AccumulatedLosses& result);
  Losses compute(const ReadBatch& given, std::int64_t index, const at::Tensor& scale, const at::Tensor& numbers, StepGraph* graph,
                 AccumulatedLosses& result);
  /// Adds the losses of a micro-batch. Terms and statistics are kept separately per source.
  void add_losses(const Losses& losses, const std::string& source, AccumulatedLosses& result) const;

  const Config& config_;
  const ProcessGroup& group_;
  TrainingRun& run_;
  GradientReducer& gradients_;
  Heartbeat& heartbeat_;
  SharedBatches batches_;
  BatchUpload upload_;
  std::function<void(const Batch&)> look_;
  std::unique_ptr<StepGraph> graph_;  // null if steps are not recorded
  Update update_;                     // may be empty
  StepUpdate updated_;                // a recorded update writes into these tensors
};

/// Makes the recorder of recorded steps (training.cuda_graph) in place of CUDA's, on any device and for any backend, while it is set. For
/// tests.
using RecorderFactory = std::function<std::unique_ptr<WorkRecorder>(const TrainingRun& run)>;
RecorderFactory& test_recorder();

/// Returns the keys of per-row randomness for this rank's rows in a micro-batch (models/per_sample_rng.h). A key depends only on (seed,
/// step, position in the step's global batch). The samples of the global batch are dealt to the ranks in turn (RankSlice).
at::Tensor step_row_keys(std::int64_t seed, std::int64_t step, std::int64_t micro_batch, std::int64_t batch_size,
                         const ProcessGroup& group);

/// Returns the generator seed for a micro-batch, which depends only on (seed, step, index of the micro-batch, rank).
std::uint64_t step_seed(std::int64_t seed, std::int64_t step, std::int64_t micro_batch, int rank = 0);

}  // namespace tessera
