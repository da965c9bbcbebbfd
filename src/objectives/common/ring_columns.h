#pragma once

#include <tessera/distributed/process_group.h>
#include <tessera/ops/activation_checkpoint.h>

namespace tessera {

/// Own images beside all texts of the global batch, with the texts of one rank at a time in memory: blocks of them
/// travel around the ranks, forward and backward, and the body is computed again in the backward pass.
/// body     gets `own`, a block of texts and its mask (undefined without one), and gives columns [..., n] for its n texts
/// own      what the body needs of this rank; receives gradients
/// texts    [n, ...]  floating, the same shape on every rank; receives the gradients of all ranks
/// mask     [n, ...]  bool or undefined; travels along
/// returns  the columns of all ranks, [..., size * n], by rank. No second derivatives.
at::Tensor ring_columns(const TileBody& body, const std::vector<at::Tensor>& own, const at::Tensor& texts,
                        const at::Tensor& mask, const ProcessGroup& group);

/// body(a tile of texts, its mask if there is one, then `own`) gives columns [B, t]; together [B, C] for all texts of
/// the global batch. texts: {features [B, ...]} or {features, mask}, of this rank. With a chunk tiles have at most so
/// many texts and are computed again in the backward pass, and texts come around the ranks instead of being gathered.
at::Tensor map_texts(const TileBody& body, const std::vector<at::Tensor>& own, const std::vector<at::Tensor>& texts,
                     std::optional<std::int64_t> chunk, const ProcessGroup& group);

}  // namespace tessera
