#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include <tessera/batch.h>
#include <tessera/objectives/objective.h>

namespace tessera {

/// Device work that is recorded once and played again: a CUDA graph, or a stand-in for it in tests.
class WorkRecorder {
 public:
  virtual ~WorkRecorder() = default;
  /// Does the work where recordings are made, so that what is set up at first use is there when one is.
  virtual void rehearse(const std::function<void()>& work) = 0;
  /// Notes what `work` has the device do, on which tensors, without doing it. Throws c10::Error when part of it cannot
  /// be noted: reading a value back, waiting for the device.
  virtual void record(const std::function<void()>& work) = 0;
  /// Does what was recorded, on whatever those tensors hold now.
  virtual void replay() = 0;
};

/// CUDA graphs on the current GPU. Throws UserError where Tessera was built without CUDA or there is no GPU.
std::unique_ptr<WorkRecorder> make_cuda_recorder();

/// What differs between two runs of the same recorded step.
struct GraphInputs {
  Batch batch;
  at::Tensor rows;    // int64 [B], keys of what is random (models/per_sample_rng.h); may be undefined
  at::Tensor weight;  // float32 scalar: what the loss is multiplied by
};

/// Forward and backward pass of a micro-batch as one recording: the first few run as they would without it, the next is
/// recorded, and from then on a batch costs the host one launch. Batches of another shape than the recorded one's run
/// without it. Gradients are added up in tensors that stay where they are; clear them with zero_gradients() only.
class StepGraph {
 public:
  /// Leaves the gradients in the parameters. May read nothing that changes between steps but its argument, and nothing
  /// back from the device.
  using Work = std::function<Losses(const GraphInputs&)>;

  /// parameters: those that `work` computes gradients of.
  StepGraph(std::unique_ptr<WorkRecorder> recorder, std::vector<at::Tensor> parameters, Work work);

  /// The losses hold until the next call. Throws UserError when the work cannot be recorded.
  Losses run(const GraphInputs& inputs);
  /// In place of optimizer->zero_grad().
  void zero_gradients();

 private:
  struct Recording {
    GraphInputs inputs;
    Losses losses;
  };
  void record(const GraphInputs& inputs);

  std::unique_ptr<WorkRecorder> recorder_;
  std::vector<at::Tensor> parameters_;
  Work work_;
  std::int64_t rehearsed_ = 0;
  std::unique_ptr<Recording> recorded_;  // null: not yet
};

}  // namespace tessera
