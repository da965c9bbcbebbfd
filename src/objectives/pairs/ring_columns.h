#pragma once

#include <tessera/distributed/process_group.h>
#include <tessera/ops/activation_checkpoint.h>

namespace tessera {

/// Applies `body` to this rank's images and all texts of the global batch, with the texts of only one rank in memory at a time.
/// Blocks of texts travel around the ranks, forward and backward; the body is recomputed in the backward pass.
/// body     takes `own`, a block of texts and its mask (undefined if there is none), and returns columns [..., n] for its n texts
/// own      this rank's inputs of the body; they get gradients
/// texts    [n, ...]  floating-point, the same shape on every rank; they get the gradients of all ranks
/// mask     [n, ...]  bool or undefined; travels with the texts
/// returns  the columns of all ranks, [..., size * n], in order of rank. Second derivatives are not supported.
at::Tensor ring_columns(const TileBody& body, const std::vector<at::Tensor>& own, const at::Tensor& texts,
                        const at::Tensor& mask, const ProcessGroup& group);

/// Applies `body` to all texts of the global batch. The body's inputs are a tile of t texts, the tile's mask if there is one, and `own`.
/// The results [B, t] of all tiles are concatenated into [B, C]. `texts` contains this rank's {features [B, ...]} or {features, mask}. If
/// `chunk` is set, a tile has at most `chunk` texts and is recomputed in the backward pass, and texts travel around the ranks instead of
/// being gathered.
at::Tensor map_texts(const TileBody& body, const std::vector<at::Tensor>& own, const std::vector<at::Tensor>& texts,
                     std::optional<std::int64_t> chunk, const ProcessGroup& group);

}  // namespace tessera
