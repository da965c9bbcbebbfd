#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <tessera/batch.h>
#include <tessera/distributed/process_group.h>
#include <tessera/objectives/objective.h>

namespace tessera {

/// Records device work and replays it. The recordings are CUDA graphs, or in tests a stand-in for them.
class WorkRecorder {
 public:
  virtual ~WorkRecorder() = default;
  /// Runs the work in the same environment as a recording, so that lazy initialization is done before the recording.
  virtual void rehearse(const std::function<void()>& work) = 0;
  /// Records the device operations of `work` and their tensors without running them. The recordings are numbered 0, 1, ... and share
  /// memory: a replay may overwrite all tensors that another recording has made and that no longer exist. Throws c10::Error if `work` does
  /// something that cannot be recorded, such as reading a value back or waiting for the device.
  virtual void record(const std::function<void()>& work) = 0;
  /// Runs the operations of a recording on the tensors' current values.
  virtual void replay(std::size_t recording) = 0;
};

/// Returns a recorder of CUDA graphs on the current GPU. Throws UserError if Tessera was built without CUDA or there is no GPU.
std::unique_ptr<WorkRecorder> make_cuda_recorder();

/// The inputs of a recorded step, which change between replays.
struct GraphInputs {
  Batch batch;
  at::Tensor rows;    // int64 [B], keys of per-row randomness (models/per_sample_rng.h); may be undefined
  at::Tensor weight;  // float32 scalar, the factor of the loss
  at::Tensor numbers;  // float64 [3], UpdateInputs::numbers, if the work includes the update; else undefined
};

/// Runs the forward and backward pass of micro-batches, and perhaps the update, as a recording. The first few batches run normally, and the
/// next batch is recorded. From then on the host needs only one launch per batch. A recording has fixed shapes, so there is one for each
/// shape of batches that occurs again, up to kMostRecordings. Batches of other shapes run normally. A text view's lengths are replaced by
/// length_bound(), which belongs to the shape: texts are packed into a number of tokens that is a multiple of kPackingBucket.
/// The gradients are in tensors whose addresses must not change, so they must be cleared only with zero_gradients().
class StepGraph {
 public:
  /// With `one_batch`, an update has the gradients of one batch. A replay then overwrites the previous gradients, so that no operation has
  /// to set them to zero or to add to them. With `several_batches`, the gradients of an update's batches are added.
  enum class Update { one_batch, several_batches };

  /// Each recording keeps its inputs and, for updates of one batch, gradients of its own.
  static constexpr std::size_t kMostRecordings = 4;

  /// A function that leaves gradients in the parameters. It must not depend on anything that changes between steps, except its
  /// argument, and must not read values back from the device.
  using Work = std::function<Losses(const GraphInputs&)>;

  /// `parameters` are the parameters for which `work` computes gradients. The ranks of `group` agree on the lengths' bounds, so that all of
  /// them record and replay the same work in each step.
  StepGraph(std::unique_ptr<WorkRecorder> recorder, std::vector<at::Tensor> parameters, Update update, Work work, ProcessGroup group = {});

  /// Runs or replays the work. The losses are valid until the next call. Throws UserError if the work cannot be recorded.
  Losses run(const GraphInputs& inputs);
  /// Clears the gradients before an update's first batch. Must be used instead of optimizer->zero_grad().
  void zero_gradients();

 private:
  struct Recording {
    GraphInputs inputs;
    Losses losses;
    std::vector<at::Tensor> gradients;  // [parameter], what a replay writes for an update of one batch
    std::size_t number = 0;             // of the recorder
  };
  struct Shape {
    std::int64_t rehearsed = 0;
    std::unique_ptr<Recording> recording;  // null until a batch of this shape has been recorded
  };
  void bound_lengths(Batch& batch) const;
  std::unique_ptr<Recording> record(const GraphInputs& inputs);

  std::unique_ptr<WorkRecorder> recorder_;
  std::vector<at::Tensor> parameters_;
  Update update_;
  Work work_;
  ProcessGroup group_;
  std::int64_t rehearsed_ = 0;
  std::size_t recordings_ = 0;
  bool warned_ = false;
  std::map<std::string, Shape> shapes_;
};

}  // namespace tessera
