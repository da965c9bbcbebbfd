#pragma once

#include <tessera/distributed/process_group.h>

namespace tessera {

/// Gathers rows from all ranks: [n, ...] on each rank -> [size * n, ...], in rank order. The backward pass sums the gradients of the
/// gathered rows over all ranks, and each rank gets the sums for its own rows (reduce-scatter). A process without other ranks gets its
/// argument back.
at::Tensor gather_rows(const at::Tensor& own, const ProcessGroup& group);

/// Transposes the distribution of a matrix that is split by rows over the ranks: this rank's rows [n, size * n] -> this
/// rank's columns [size * n, n], where row block k came from rank k. The backward pass does the reverse. A process
/// without other ranks gets its argument back.
at::Tensor rows_to_columns(const at::Tensor& rows, const ProcessGroup& group);

/// Returns the sum of all ranks' tensors, which must have equal shapes. The backward pass sums all ranks' gradients. A
/// process without other ranks gets its argument back.
at::Tensor sum_over_ranks(const at::Tensor& own, const ProcessGroup& group);

}  // namespace tessera
