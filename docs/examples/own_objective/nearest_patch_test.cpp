// Compares the gradient of every input and parameter with central differences, in float64.
#include "nearest_patch.h"

#include <algorithm>
#include <cmath>
#include <iostream>

#include <torch/csrc/autograd/autograd.h>

int main() {
  at::manual_seed(1);
  const auto leaf = [](at::IntArrayRef shape) { return at::randn(shape, at::kDouble).requires_grad_(); };
  NearestPatch objective({.word_weight = 0.5}, {});
  objective.to(at::kDouble);
  const at::Tensor mask = at::tensor({1, 1, 1, 0, 1, 1}, at::kLong).view({3, 2}).to(at::kBool);  // lengths 2, 1, 2
  const std::vector<at::Tensor> inputs = {leaf({3, 4}), leaf({3, 5, 4}), leaf({3, 4}), leaf({3, 2, 4}),
                                          objective.parameters()[0]};
  const auto loss = [&] {
    tessera::Features features;
    features.images["image"] = {.global = inputs[0], .tokens = inputs[1]};
    features.texts["caption"] = {
        .global = inputs[2], .tokens = inputs[3].masked_fill(mask.logical_not().unsqueeze(2), 0), .mask = mask};
    return objective.forward(features, {}).total;
  };

  const std::vector<at::Tensor> gradients = torch::autograd::grad({loss()}, inputs);
  constexpr double kStep = 1e-6;
  double worst = 0;
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const at::Tensor values = inputs[i].view(-1), gradient = gradients[i].reshape(-1);
    for (std::int64_t k = 0; k < values.numel(); ++k) {
      values[k] += kStep;
      const double above = loss().item<double>();
      values[k] -= 2 * kStep;
      const double below = loss().item<double>();
      values[k] += kStep;
      worst = std::max(worst, std::abs((above - below) / (2 * kStep) - gradient[k].item<double>()));
    }
  }
  std::cout << "worst difference of a gradient: " << worst << "\n";
  return worst < 1e-6 ? 0 : 1;
}
