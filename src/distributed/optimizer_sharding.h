#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include <tessera/distributed/process_group.h>

namespace tessera {

/// Assigns whole tensors to ranks so that all ranks own about equally many elements. Tensors are assigned from the largest to the smallest,
/// each to the rank with the fewest elements so far (the lowest rank on a tie). No rank gets more elements than the mean over the ranks
/// plus the size of the largest tensor. Returns the owner of each tensor, the same on every rank.
std::vector<int> balanced_owners(const std::vector<at::Tensor>& tensors, int ranks);

/// Copies each tensor's values from its owner into the same tensor of all other ranks, in transfers of up to bucket_mb
/// MiB.
void broadcast_from_owners(const std::vector<at::Tensor>& tensors, const std::vector<int>& owners,
                           const ProcessGroup& group, double bucket_mb);

/// Sends a tensor from its owner to rank 0. `tensor` holds the values on the owner; on other ranks only its shape and type matter. On rank
/// 0, returns the values in host memory, or `tensor` itself if rank 0 is the owner. On other ranks, returns an undefined tensor.
at::Tensor send_to_first(const at::Tensor& tensor, int owner, const ProcessGroup& group);

}  // namespace tessera
