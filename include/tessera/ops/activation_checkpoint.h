#pragma once

#include <functional>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

namespace tessera {

/// A function that computes one tensor from other tensors. Every tensor that needs a gradient must be passed in the argument.
using TileBody = std::function<at::Tensor(const std::vector<at::Tensor>&)>;

/// Returns body(inputs) but keeps only the inputs for the backward pass, which runs the body again (gradient
/// checkpointing). Throws c10::Error on second derivatives.
at::Tensor checkpointed(const TileBody& body, const std::vector<at::Tensor>& inputs);

/// A function that computes tensors from other tensors.
using TensorsBody = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>;

/// Returns body(inputs). `parameters` are the module parameters that the body uses; they are not passed to the body. Keeps only the inputs
/// for the backward pass, which runs the body again under the forward pass's autocast state. Gradients reach the inputs and `parameters`.
/// The body must not use random numbers.
std::vector<at::Tensor> recomputed(const TensorsBody& body, const std::vector<at::Tensor>& inputs,
                                   const std::vector<at::Tensor>& parameters);
/// Does the same with a body that maps one tensor to one tensor.
at::Tensor recomputed(const std::function<at::Tensor(const at::Tensor&)>& body, const at::Tensor& x,
                      const std::vector<at::Tensor>& parameters);

/// Applies `body` to tiles of at most `chunk` rows (first dimension) of the batched tensors and joins the results along
/// `join`. The body gets the slices of `batched`, then all of `shared`. With a chunk, each tile is checkpointed, so
/// that memory does not grow with the batch; without a chunk, the body runs once, on all rows.
at::Tensor map_tiles(const TileBody& body, const std::vector<at::Tensor>& batched,
                     const std::vector<at::Tensor>& shared, std::optional<std::int64_t> chunk, std::int64_t join = 0);

}  // namespace tessera
