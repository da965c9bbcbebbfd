#pragma once

#include <tessera/distributed/process_group.h>

namespace tessera {

/// Rows of all ranks: [n, ...] of each -> [size * n, ...], by rank. The backward pass sums the gradients that all ranks
/// have for these rows and gives each rank its own (reduce-scatter). Alone: the argument itself.
at::Tensor gather_rows(const at::Tensor& own, const ProcessGroup& group);

/// From this rank's rows of a matrix spread by rows, its columns: rows [n, size * n] -> columns [size * n, n], where
/// row block k came from rank k. The backward pass is the way back. Alone: the argument itself.
at::Tensor rows_to_columns(const at::Tensor& rows, const ProcessGroup& group);

/// The sum of all ranks' tensors, which have one shape. The backward pass sums the gradients that all ranks have for
/// it. Alone: the argument itself.
at::Tensor sum_over_ranks(const at::Tensor& own, const ProcessGroup& group);

}  // namespace tessera
