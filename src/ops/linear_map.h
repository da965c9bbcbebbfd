#pragma once

#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "kernels/gemm/gemm.h"
#include "src/ops/tuning.h"

namespace tessera {

/// A linear map x -> x weight^T + bias.
struct MapParameters {
  at::Tensor weight;  // [out, in], which gets the gradient; undefined: there is no such map
  at::Tensor bias;    // [out], of any floating type; undefined: none
  at::Tensor copy;    // of the weight in the type in which products are computed, without a history; undefined: the weight itself

  const at::Tensor& multiplied() const { return copy.defined() ? copy : weight; }
};

// The products of linear maps, each with what follows it, so that a GPU computes both in one launch or one pass where it can: with
// cuBLASLt's epilogues or CUTLASS (kernels/gemm) in bfloat16, and with the kernels of kernels/activation in float32 and bfloat16. On the
// CPU and for other types these are LibTorch's operators, bit by bit what autograd computes. Matrices are [..., in] and [..., out]; nothing
// records a history, and autocast must be off.

/// Returns x weight^T + bias. On the CPU, at::linear() and torch's functional can round differently: all published results were measured
/// with the first for queries, keys and values, and with the second (`by_functional`) for other maps. The functional adds the bias of a
/// padded batch in the bias's own type.
at::Tensor apply_map(const at::Tensor& x, const MapParameters& parameters, bool by_functional);

/// The result of a map, and the activation (src/ops/activation.h) of it.
struct ActivatedMap {
  at::Tensor before, after;
};
/// Releases x before the activation is computed, if the caller gives it away.
ActivatedMap map_and_activate(at::Tensor x, const MapParameters& parameters, bool by_functional, const std::string& activation);

/// Returns activate(x, activation) * factor.
at::Tensor activate_and_multiply(const at::Tensor& x, const at::Tensor& factor, const std::string& activation);

/// Returns the gradient gradient * weight of a map's input. If `sum` is defined, adds it to the product, and may change it in place.
at::Tensor input_gradient(const at::Tensor& gradient, const at::Tensor& weight, const at::Tensor& sum = {});

/// The gradients of the arguments of an activation and of the biases that were added before it: their sums over all rows. Undefined where
/// they are not wanted, or where there is no factor.
struct ActivationGradient {
  at::Tensor x, x_bias, factor, factor_bias;
};
/// The gradient of `before`, if activate(before, activation) was a map's input. The bias gradient may be missing even if it is wanted:
/// parameter_gradient() of the map before computes it in the same pass then.
ActivationGradient activated_input_gradient(const at::Tensor& gradient, const at::Tensor& weight, const at::Tensor& before,
                                            const std::string& activation, bool bias_wanted);
/// The gradients of activate_and_multiply(), from that of its result. `factor` may be undefined: 1.
ActivationGradient activation_gradient(const at::Tensor& gradient, const at::Tensor& x, const at::Tensor& factor,
                                       const std::string& activation, bool biases_wanted);

struct MapGradient {
  at::Tensor weight, bias;
};
/// Returns the gradients of a map's parameters that are wanted, from that of its result. On a GPU, that of the weight is float32 if `type`
/// is; everywhere else it has the gradient's type.
MapGradient parameter_gradient(const at::Tensor& gradient, const at::Tensor& x, at::ScalarType type, bool weight_wanted, bool bias_wanted);

/// What the choice of an algorithm of kernels/gemm depends on: all of the problem, with its rows rounded up to a power of two, because
/// packed captions have another number of rows in each batch.
TuningKey linear_map_tuning_key(const kernels::GemmProblem& problem);

/// Returns the algorithm for a product among those that can compute it, best first: the one that the tuning table names, or else the first,
/// because other numbers of rows with the same key may have other algorithms. Empty if there is none.
std::string choose_algorithm(const kernels::GemmProblem& problem, const std::vector<std::string>& algorithms);

}  // namespace tessera
