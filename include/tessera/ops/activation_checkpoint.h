#pragma once

#include <functional>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

namespace tessera {

/// Computes one tensor from others. All tensors it needs gradients for must come through its argument.
using TileBody = std::function<at::Tensor(const std::vector<at::Tensor>&)>;

/// body(inputs), keeping only the inputs for the backward pass, which computes the body again (gradient checkpointing).
/// Second derivatives are refused.
at::Tensor checkpointed(const TileBody& body, const std::vector<at::Tensor>& inputs);

/// body(x) of a module whose parameters the body uses by itself, keeping only x for the backward pass, which computes the
/// body again under the autocast of the forward pass. Gradients reach x and `parameters`. The body must not be random.
at::Tensor recomputed(const std::function<at::Tensor(const at::Tensor&)>& body, const at::Tensor& x,
                      const std::vector<at::Tensor>& parameters);

/// Applies `body` to tiles of at most `chunk` rows (first dimension) of the batched tensors and joins the results along
/// `join`. The body gets the slices of `batched`, then `shared` whole. With a chunk each tile is checkpointed, so that
/// memory does not grow with the batch; without one the body runs once on everything.
at::Tensor map_tiles(const TileBody& body, const std::vector<at::Tensor>& batched,
                     const std::vector<at::Tensor>& shared, std::optional<std::int64_t> chunk, std::int64_t join = 0);

}  // namespace tessera
