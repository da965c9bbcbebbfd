#pragma once

#include <map>
#include <string>

#include <ATen/core/Tensor.h>

namespace tessera {

/// Normalizes each slot to length 1, concatenates the slots and divides by sqrt(L), so that the dot product of two such vectors is the mean
/// of their slots' cosines (SPARO, eq. 2). slots [B, L, V] -> [B, L V]; a zero slot stays zero.
at::Tensor concatenated_unit_slots(const at::Tensor& slots);

/// If a model uses its keys as values, it stores only `k.*`, but the reference code's files store the same weights again as `v.*`. Adds the
/// missing `v.*` to `weights`, as tensors that share memory with `k.*`.
void add_value_copies(std::map<std::string, at::Tensor>& weights);

/// The inverse of add_value_copies(). `weights` are a file's tensors, and `own` is the model's state_dict. If `own` has no `v.*`, renames
/// `v.*` in `weights` to `k.*`. If `weights` already has an equal `k.*`, only removes `v.*`. Throws UserError naming `origin` if `k.*`
/// differs.
void merge_value_copies(std::map<std::string, at::Tensor>& weights, const std::map<std::string, at::Tensor>& own,
                        const std::string& origin);

}  // namespace tessera
