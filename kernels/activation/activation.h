#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "kernels/status.h"
#include "kernels/types.h"

/// Activation functions between two linear maps, and their gradients together with the gradient of the bias that was added before them, in
/// one pass over the rows:
///   y = act(x) * factor, grad_x = grad_y * factor * act'(x), grad_factor = grad_y * act(x), and the column sums of both gradients
/// The factor belongs to gated maps and may be missing (null). All matrices are [rows, width], contiguous, and of one type. Arithmetic and
/// sums are float32. Sums are added in an order that depends only on the shape, so results are the same in every run.
///
/// The kernels run on a GPU; on the CPU, src/ops/linear_map.cpp composes the same of LibTorch's operations.
namespace tessera::kernels {

/// gelu: x * Phi(x). gelu_tanh: its approximation with tanh. quick_gelu: x * sigmoid(1.702 x). silu: x * sigmoid(x).
enum class Activation { kGelu, kGeluTanh, kQuickGelu, kSilu };

/// Finds the activation with this name: gelu, gelu_tanh, quick_gelu or silu. Returns false if there is none.
bool find_activation(const std::string& name, Activation& found);

struct ActivationProblem {
  Activation activation = Activation::kGelu;
  std::int64_t rows = 0;   ///< may be 0
  std::int64_t width = 0;  ///< at least 1
  DataType type = DataType::kFloat32;
};

struct ActivationForward {
  ActivationProblem problem;
  const void* x = nullptr;
  const void* factor = nullptr;  ///< null: 1
  void* y = nullptr;             ///< out
};

/// Gradients. A null sum is not computed.
struct ActivationBackward {
  ActivationProblem problem;
  const void* x = nullptr;
  const void* factor = nullptr;  ///< null: 1
  const void* grad_y = nullptr;
  void* grad_x = nullptr;            ///< out
  void* grad_factor = nullptr;       ///< out, if there is a factor
  float* grad_x_sum = nullptr;       ///< out [width]: sum of grad_x over rows, before it is rounded
  float* grad_factor_sum = nullptr;  ///< out [width], if there is a factor
  void* workspace = nullptr;         ///< activation_workspace() bytes, if there are sums
};

/// Returns a failure with a one-line message that names the first bad argument.
Status check(const ActivationForward& arguments);
Status check(const ActivationBackward& arguments);

/// These functions run on the current device, asynchronously on `stream` (a cudaStream_t). The workspace is for the backward pass.
namespace cuda {
std::size_t activation_workspace(const ActivationProblem& problem);
Status activation_forward(const ActivationForward& arguments, void* stream);
Status activation_backward(const ActivationBackward& arguments, void* stream);
}  // namespace cuda
namespace emulation {
std::size_t activation_workspace(const ActivationProblem& problem);
Status activation_forward(const ActivationForward& arguments, void* stream);
Status activation_backward(const ActivationBackward& arguments, void* stream);
}  // namespace emulation

}  // namespace tessera::kernels
