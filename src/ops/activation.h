#pragma once

#include <string>

#include <ATen/core/Tensor.h>

namespace tessera {

/// Applies "gelu", "gelu_tanh", "quick_gelu", "silu" or "relu" to x.
at::Tensor activate(const at::Tensor& x, const std::string& activation);

/// Returns the gradient of x, given the gradient of activate(x). It equals autograd's bit by bit.
at::Tensor activate_backward(const at::Tensor& gradient, const at::Tensor& x, const std::string& activation);

}  // namespace tessera
