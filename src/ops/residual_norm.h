#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

namespace tessera {

/// An update of a residual stream that has not been added to the stream yet: value * column_scale * row_factors.
struct ResidualUpdate {
  at::Tensor value;  // of the stream's shape; undefined: there is no update
  /// [w], the bias of the linear map whose result is `value`. Its gradient is computed where the update is added, in the pass that computes
  /// the update's gradient, so the linear map itself must not compute it. Undefined: there is no bias.
  at::Tensor bias;
  at::Tensor column_scale;  // [w], LayerScale; undefined: 1
  at::Tensor row_factors;   // [B] for a stream [B, N, w], [T] for [T, w]: stochastic depth, without a gradient; undefined: 1
};

/// A residual stream x [B, N, w], or packed [T, w], and the update of the part that ran last. Whoever reads the stream adds the update; a
/// kernel that adds it also computes the norm that follows. The stream's type, float32 or bfloat16, does not change when updates are added.
struct ResidualStream {
  at::Tensor x;
  ResidualUpdate update;
};

/// LayerNorm over the last dimension.
struct NormParameters {
  at::Tensor weight, bias;  // [w]; undefined: there is no norm
  double epsilon = 0;
};

/// Returns the stream with its update added; x itself if there is none. Has no second derivatives, nor has residual_norm().
at::Tensor residual_sum(const ResidualStream& stream);

/// Returns LayerNorm(residual_sum(stream)), computed in at least float32, in the type `type`.
at::Tensor residual_norm(const ResidualStream& stream, const NormParameters& norm, at::ScalarType type);

// ---- the two passes without autograd, for functions with a backward pass of their own

/// The sum of a stream and its update, and the norm of the sum in the type asked for. mean and rstd [rows, ...] are for the backward pass.
struct NormedSum {
  at::Tensor sum, output, mean, rstd;  // without a norm, only `sum` is defined
};
NormedSum add_and_normalize(const ResidualStream& stream, const NormParameters& norm, at::ScalarType type);

/// Which gradients add_and_normalize_backward() computes in addition to those of x and the update's value.
struct WantedSums {
  bool update_bias = false, column_scale = false, norm = false;
};

/// Gradients of the arguments of add_and_normalize(). Those that are not wanted are undefined.
struct NormedSumGradients {
  at::Tensor x, value, update_bias, column_scale, weight, bias;
};

/// `update` is the forward pass's update; its value is used only for the gradient of the column scale, but its type is always that of the
/// value's gradient. grad_sum: the gradient that reaches the sum from elsewhere, in the stream's type; may be undefined if there is a norm.
NormedSumGradients add_and_normalize_backward(const NormedSum& result, const ResidualUpdate& update, at::ScalarType update_type,
                                              const NormParameters& norm, const at::Tensor& grad_sum, const at::Tensor& grad_output,
                                              const WantedSums& wanted);

}  // namespace tessera
