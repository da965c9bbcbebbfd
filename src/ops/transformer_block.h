#pragma once

#include <functional>
#include <string>
#include <vector>

#include "src/ops/linear_map.h"
#include "src/ops/residual_norm.h"

namespace tessera {

/// The parts of a pre-norm transformer block
///   x += factors_1 * scale_1 * out(attention(qkv(norm_1(x))));  x += factors_2 * scale_2 * projection(hidden(norm_2(x)))
/// where hidden(y) = activation(fc(y)), or activation(gate(y)) * fc(y) if there is a gate.
struct BlockParts {
  NormParameters norm_1, norm_2;
  MapParameters qkv, out, gate, fc, projection;
  at::Tensor scale_1, scale_2;      // [w], LayerScale; undefined: 1
  at::Tensor factors_1, factors_2;  // [B] or [T], without gradients, for stochastic depth; undefined: 1
  std::string activation = "gelu";  // a name that activate() knows
  /// Maps the results of qkv [..., 3 w] to what `out` takes [..., w]. Runs under the autocast state of the caller. The backward pass
  /// differentiates it with autograd, so masks, packed rows, rotations and norms of heads need no code here.
  std::function<at::Tensor(const at::Tensor& qkv)> attention;
  std::vector<at::Tensor> attention_parameters;  // the parameters that `attention` uses; their gradients are computed, too
};

/// Runs a block as one autograd function with a backward pass of its own. Adds the stream's update, and returns a stream whose update is
/// that of the block's second part. Equals the composed operators; in float32 and float64 on the CPU bit by bit, forward and backward. Has
/// no second derivatives (c10::Error).
ResidualStream transformer_block(const ResidualStream& stream, const BlockParts& parts);

}  // namespace tessera
