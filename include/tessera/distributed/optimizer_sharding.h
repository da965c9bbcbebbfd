#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include <tessera/distributed/process_group.h>

namespace tessera {

/// Shares whole tensors out so that each rank gets about as many elements: the largest first, each to the rank that has
/// least so far (the first of several). No rank gets more than the mean and the largest tensor together. Returns the
/// owner of each tensor; the same everywhere.
std::vector<int> balanced_owners(const std::vector<at::Tensor>& tensors, int ranks);

/// Copies each tensor's values from its owner into those of all other ranks, in transfers of up to bucket_mb MiB.
void broadcast_from_owners(const std::vector<at::Tensor>& tensors, const std::vector<int>& owners,
                           const ProcessGroup& group, double bucket_mb);

/// Brings a tensor from its owner to rank 0. `tensor`: the values, on the owner; elsewhere shape and type alone count.
/// Returns on rank 0 a tensor in host memory (or its own one, when it is the owner), elsewhere an undefined one.
at::Tensor send_to_first(const at::Tensor& tensor, int owner, const ProcessGroup& group);

}  // namespace tessera
