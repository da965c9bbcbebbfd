#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

namespace tessera {

/// Maps the positions of a list of tensors, some of which are undefined, to the edges of the autograd function that takes the defined ones.
class InputEdges {
 public:
  explicit InputEdges(const std::vector<at::Tensor>& tensors) {
    for (const at::Tensor& tensor : tensors) {
      edges_.push_back(tensor.defined() ? std::optional(count_++) : std::nullopt);
      types_.push_back(tensor.defined() ? tensor.scalar_type() : at::ScalarType::Undefined);
    }
  }

  /// The type of the tensor at this position, which its gradient has, too.
  at::ScalarType type(std::size_t position) const { return types_[position]; }

  /// Whether the backward pass that is running needs the gradient of the tensor at this position.
  bool needs_gradient(const torch::autograd::AutogradContext& context, std::size_t position) const {
    return edges_[position] && context.needs_input_grad(*edges_[position]);
  }
  /// Returns what the function's backward() returns: of the gradients of all positions, those that have an edge, and `others` undefined
  /// tensors for arguments that are no tensors.
  torch::autograd::variable_list gradients(const std::vector<at::Tensor>& of_positions, std::size_t others) const {
    torch::autograd::variable_list out(count_ + others);
    for (std::size_t i = 0; i < edges_.size(); ++i)
      if (edges_[i]) out[*edges_[i]] = of_positions[i];
    return out;
  }

 private:
  std::size_t count_ = 0;
  std::vector<std::optional<std::size_t>> edges_;
  std::vector<at::ScalarType> types_;
};

/// Returns the defined ones of the tensors, in order.
inline std::vector<at::Tensor> defined_ones(std::vector<at::Tensor> tensors) {
  std::erase_if(tensors, [](const at::Tensor& tensor) { return !tensor.defined(); });
  return tensors;
}

/// Whether autograd records a function of these tensors.
inline bool is_recorded(const std::vector<at::Tensor>& tensors) {
  return c10::GradMode::is_enabled() &&
         std::any_of(tensors.begin(), tensors.end(), [](const at::Tensor& tensor) { return tensor.defined() && tensor.requires_grad(); });
}

}  // namespace tessera
