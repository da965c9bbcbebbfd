#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include "src/training/step/step_graph.h"
#include <tessera/base/error.h>

namespace tessera {
namespace {

// Number of normal runs before a recording. In the first runs, libraries choose algorithms and allocate workspaces.
constexpr std::int64_t kRehearsals = 3;

std::vector<at::Tensor*> tensors_of(GraphInputs& inputs) {
  std::vector<at::Tensor*> out;
  for_each_tensor(inputs.batch, [&](at::Tensor& tensor) { out.push_back(&tensor); });
  out.insert(out.end(), {&inputs.rows, &inputs.weight});
  return out;
}

bool same_shape(const at::Tensor& a, const at::Tensor& b) {
  if (!a.defined() || !b.defined()) return a.defined() == b.defined();
  return a.sizes() == b.sizes() && a.scalar_type() == b.scalar_type() && a.device() == b.device();
}

bool same_shapes(GraphInputs& a, GraphInputs& b) {
  const auto ours = tensors_of(a), theirs = tensors_of(b);
  return ours.size() == theirs.size() &&
         std::equal(ours.begin(), ours.end(), theirs.begin(),
                    [](const at::Tensor* x, const at::Tensor* y) { return same_shape(*x, *y); });
}

std::string first_line(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

}  // namespace

StepGraph::StepGraph(std::unique_ptr<WorkRecorder> recorder, std::vector<at::Tensor> parameters, Update update, Work work)
    : recorder_(std::move(recorder)), parameters_(std::move(parameters)), update_(update), work_(std::move(work)) {}

Losses StepGraph::run(const GraphInputs& inputs) {
  GraphInputs given = inputs;
  // A recording has fixed shapes, so it also processes padded positions and does not use the texts' lengths.
  for (auto& [name, view] : given.batch.texts) view.lengths.reset();
  const bool other = recorded_ && !same_shapes(recorded_->inputs, given);
  if (other || rehearsed_ < kRehearsals) {
    Losses losses;
    recorder_->rehearse([&] { losses = work_(given); });
    if (!other) ++rehearsed_;
    return losses;
  }
  if (!recorded_) record(given);
  const auto to = tensors_of(recorded_->inputs), from = tensors_of(given);
  for (std::size_t i = 0; i < to.size(); ++i)
    if (to[i]->defined()) to[i]->copy_(*from[i], /*non_blocking=*/true);
  recorder_->replay();
  for (std::size_t i = 0; i < recorded_->gradients.size(); ++i) parameters_[i].mutable_grad() = recorded_->gradients[i];
  return recorded_->losses;
}

void StepGraph::record(const GraphInputs& inputs) {
  auto recording = std::make_unique<Recording>(Recording{inputs, {}});
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
  if (update_ == Update::one_batch)
    for (const at::Tensor& parameter : parameters_) recording->gradients.push_back(parameter.grad());
  // The recording now owns the tensors, so the autograd graph can be released.
  recording->losses.total = recording->losses.total.detach();
  for (auto& [name, value] : recording->losses.terms) value = value.detach();
  recorded_ = std::move(recording);
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
