#include <utility>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include "src/models/packed_rows.h"
#include "src/training/step/step_graph.h"
#include <tessera/base/error.h>
#include <tessera/base/log.h>
#include <tessera/base/text.h>

namespace tessera {
namespace {

// Number of normal runs before a recording, at least one of which has the recording's shape. In the first runs, libraries choose algorithms
// and allocate workspaces.
constexpr std::int64_t kRehearsals = 3;

std::vector<at::Tensor*> tensors_of(GraphInputs& inputs) {
  std::vector<at::Tensor*> out;
  for_each_tensor(inputs.batch, [&](at::Tensor& tensor) { out.push_back(&tensor); });
  out.insert(out.end(), {&inputs.rows, &inputs.weight, &inputs.numbers});
  return out;
}

// Returns what two batches must have in common to be processed by one recording.
std::string shape_of(GraphInputs& inputs) {
  std::string out;
  for (const at::Tensor* tensor : tensors_of(inputs))
    out += tensor->defined() ? concat(tensor->sizes(), " ", c10::toString(tensor->scalar_type()), " ", tensor->device(), ", ") : "none, ";
  for (const auto& [name, view] : inputs.batch.texts) out += concat(name, " ", bound_of(view.lengths), ", ");
  return out;
}

std::string first_line(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

}  // namespace

StepGraph::StepGraph(std::unique_ptr<WorkRecorder> recorder, std::vector<at::Tensor> parameters, Update update, Work work, ProcessGroup group)
    : recorder_(std::move(recorder)),
      parameters_(std::move(parameters)),
      update_(update),
      work_(std::move(work)),
      group_(std::move(group)) {}

Losses StepGraph::run(const GraphInputs& inputs) {
  GraphInputs given = inputs;
  bound_lengths(given.batch);
  Shape& shape = shapes_[shape_of(given)];
  const bool full = !shape.recording && recordings_ == kMostRecordings;
  if (full && shape.rehearsed > 0 && !std::exchange(warned_, true))
    log::info(concat("training.cuda_graph: ", kMostRecordings, " shapes of batches are recorded; batches of further shapes run without a recording"));
  if (!shape.recording && (full || rehearsed_ < kRehearsals || shape.rehearsed == 0)) {
    Losses losses;
    recorder_->rehearse([&] { losses = work_(given); });
    ++rehearsed_;
    ++shape.rehearsed;
    return losses;
  }
  if (!shape.recording) shape.recording = record(given);
  Recording& recording = *shape.recording;
  const auto to = tensors_of(recording.inputs), from = tensors_of(given);
  for (std::size_t i = 0; i < to.size(); ++i)
    if (to[i]->defined()) to[i]->copy_(*from[i], /*non_blocking=*/true);
  recorder_->replay(recording.number);
  for (std::size_t i = 0; i < recording.gradients.size(); ++i) parameters_[i].mutable_grad() = recording.gradients[i];
  return recording.losses;
}

void StepGraph::bound_lengths(Batch& batch) const {
  std::vector<std::int64_t> bounds;
  for (auto& [name, view] : batch.texts) {
    if (!view.lengths.defined()) continue;
    view.lengths = length_bound(view.lengths);
    bounds.push_back(bound_of(view.lengths));
  }
  if (group_.alone() || bounds.empty()) return;
  at::Tensor agreed = at::tensor(bounds, at::kLong);
  group_.all_reduce(agreed, Reduction::max);
  std::int64_t next = 0;
  for (auto& [name, view] : batch.texts)
    if (view.lengths.defined()) view.lengths.view({-1})[0] = -agreed[next++];
}

std::unique_ptr<StepGraph::Recording> StepGraph::record(const GraphInputs& inputs) {
  auto recording = std::make_unique<Recording>(Recording{inputs, {}, {}, recordings_});
  for (at::Tensor* tensor : tensors_of(recording->inputs))
    if (tensor->defined()) *tensor = tensor->clone();
  // Without gradients, the backward pass keeps the tensors that it computes, which belong to the recording, as the parameters' gradients.
  if (update_ == Update::one_batch) zero_gradients();
  try {
    recorder_->record([this, to = recording.get()] { to->losses = work_(to->inputs); });
  } catch (const c10::Error& error) {
    user_error("training.cuda_graph: the step cannot be recorded (", first_line(error.what_without_backtrace()),
               "): part of it waits for the device; set training.cuda_graph to false");
  }
  ++recordings_;
  if (update_ == Update::one_batch)
    for (const at::Tensor& parameter : parameters_) recording->gradients.push_back(parameter.grad());
  // The recording now owns the tensors, so the autograd graph can be released.
  recording->losses.total = recording->losses.total.detach();
  for (auto& [name, value] : recording->losses.terms) value = value.detach();
  return recording;
}

void StepGraph::zero_gradients() {
  if (update_ == Update::one_batch) {
    for (at::Tensor& parameter : parameters_) parameter.mutable_grad().reset();
    return;
  }
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> gradients;
  for (at::Tensor& parameter : parameters_)
    if (parameter.grad().defined()) gradients.push_back(parameter.grad());
  if (!gradients.empty()) at::_foreach_zero_(gradients);
}

}  // namespace tessera
