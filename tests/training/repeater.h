#pragma once

#include <cmath>
#include <functional>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include "src/training/step/step_graph.h"

namespace tessera {

/// A recorder for the CPU. A replay runs the recorded work again on the tensors of the recording.
class Repeater : public WorkRecorder {
 public:
  /// `state` are the tensors that the work changes in addition to the gradients of the parameters.
  explicit Repeater(std::vector<at::Tensor> parameters, std::vector<at::Tensor> state = {})
      : parameters_(std::move(parameters)), state_(std::move(state)) {}

  void rehearse(const std::function<void()>& work) override {
    ++rehearsals;
    work();
  }
  // A recording on a GPU computes nothing and leaves existing gradients and other tensors unchanged. This substitute runs `work`, so it
  // restores them. Gradients that do not exist yet become tensors of the recording, whose content is undefined until a replay.
  void record(const std::function<void()>& work) override {
    const at::NoGradGuard no_grad;
    std::vector<at::Tensor> before, values;
    for (const at::Tensor& parameter : parameters_)
      before.push_back(parameter.grad().defined() ? parameter.grad().clone() : at::Tensor());
    for (const at::Tensor& tensor : state_) values.push_back(tensor.clone());
    {
      const at::AutoGradMode grad(true);
      work();
    }
    Made made{work, {}};
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      at::Tensor gradient = parameters_[i].grad();
      if (before[i].defined())
        gradient.copy_(before[i]);
      else if (gradient.defined())
        made.own.emplace_back(i, gradient.fill_(NAN));
    }
    for (std::size_t i = 0; i < state_.size(); ++i) state_[i].copy_(values[i]);
    made_.push_back(std::move(made));
    ++recordings;
  }
  // On a GPU, a replay writes to the recording's own gradients, whatever the parameters' gradients are at that time.
  void replay(std::size_t recording) override {
    ++replays;
    const Made& made = made_.at(recording);
    for (const auto& [index, gradient] : made.own) parameters_[index].mutable_grad().reset();
    made.work();
    const at::NoGradGuard no_grad;
    for (const auto& [index, gradient] : made.own) {
      gradient.copy_(parameters_[index].grad());
      parameters_[index].mutable_grad().reset();
    }
  }

  int rehearsals = 0, recordings = 0, replays = 0;

 private:
  struct Made {
    std::function<void()> work;
    std::vector<std::pair<std::size_t, at::Tensor>> own;  // the recording's own gradients, with their parameters' indices
  };
  std::vector<at::Tensor> parameters_, state_;
  std::vector<Made> made_;
};

}  // namespace tessera
