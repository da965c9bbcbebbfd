#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include <tessera/batch.h>
#include <tessera/objectives/objective.h>

namespace tessera {

/// Records device work once and replays it. It is a CUDA graph, or in tests a stand-in for one.
class WorkRecorder {
 public:
  virtual ~WorkRecorder() = default;
  /// Runs the work in the same environment as a recording, so that lazy initialization is done before the recording.
  virtual void rehearse(const std::function<void()>& work) = 0;
  /// Records the device operations of `work` and their tensors without running them. Throws c10::Error if `work` does something
  /// that cannot be recorded, such as reading a value back or waiting for the device.
  virtual void record(const std::function<void()>& work) = 0;
  /// Runs the recorded operations on the tensors' current values.
  virtual void replay() = 0;
};

/// Returns a recorder of CUDA graphs on the current GPU. Throws UserError if Tessera was built without CUDA or there is no GPU.
std::unique_ptr<WorkRecorder> make_cuda_recorder();

/// The inputs of a recorded step, which change between replays.
struct GraphInputs {
  Batch batch;
  at::Tensor rows;    // int64 [B], keys of per-row randomness (models/per_sample_rng.h); may be undefined
  at::Tensor weight;  // float32 scalar, the factor of the loss
};

/// Runs the forward and backward pass of micro-batches as one recording. The first few batches run normally, and the next batch is
/// recorded. From then on the host needs only one launch per batch. Batches whose shape differs from the recorded one run normally.
/// The gradients are in tensors whose addresses must not change, so they must be cleared only with zero_gradients().
class StepGraph {
 public:
  /// With `one_batch`, an update has the gradients of one batch. A replay then overwrites the previous gradients, so that no operation has
  /// to set them to zero or to add to them. With `several_batches`, the gradients of an update's batches are added.
  enum class Update { one_batch, several_batches };

  /// A function that leaves gradients in the parameters. It must not depend on anything that changes between steps, except its
  /// argument, and must not read values back from the device.
  using Work = std::function<Losses(const GraphInputs&)>;

  /// `parameters` are the parameters for which `work` computes gradients.
  StepGraph(std::unique_ptr<WorkRecorder> recorder, std::vector<at::Tensor> parameters, Update update, Work work);

  /// Runs or replays the work. The losses are valid until the next call. Throws UserError if the work cannot be recorded.
  Losses run(const GraphInputs& inputs);
  /// Clears the gradients before an update's first batch. Must be used instead of optimizer->zero_grad().
  void zero_gradients();

 private:
  struct Recording {
    GraphInputs inputs;
    Losses losses;
    std::vector<at::Tensor> gradients;  // [parameter], what a replay writes for an update of one batch
  };
  void record(const GraphInputs& inputs);

  std::unique_ptr<WorkRecorder> recorder_;
  std::vector<at::Tensor> parameters_;
  Update update_;
  Work work_;
  std::int64_t rehearsed_ = 0;
  std::unique_ptr<Recording> recorded_;  // null until a batch has been recorded
};

}  // namespace tessera
