#pragma once

#include <functional>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

namespace tessera {

/// Returns the square root of the sum of squares over all tensors, as a float32 scalar; 0 for an empty list. Does not wait for the device.
at::Tensor global_norm(const std::vector<at::Tensor>& tensors);

/// Scales the gradients in place by min(1, max_norm / (norm + 1e-6)), like torch.nn.utils.clip_grad_norm_. Without max_norm it only
/// measures the norm. Returns the norm before clipping. Does not wait for the device.
at::Tensor clip_grad_norm(const std::vector<at::Tensor>& gradients, std::optional<double> max_norm);

/// Returns min(1, max_norm / (norm + 1e-6)).
at::Tensor clip_factor(const at::Tensor& norm, double max_norm);

/// What the limit on the norm applies to.
enum class ClipMode {
  global,      // all gradients together, scaled by one factor
  per_tensor,  // each gradient separately, with its own norm (Caron et al. 2021, DINO)
};

/// Gradient norms before clipping, as float32 scalars.
struct GradientNorms {
  at::Tensor global;
  std::vector<at::Tensor> groups;
  at::Tensor factor;  // float32 scalar by which the gradients have still to be multiplied; undefined: none (Optimizer::applies_factor())
};

/// Clips in the given mode, and also returns the norm of each of `groups` groups; gradient i belongs to the group group_of[i]. The group
/// norms are computed from the tensors' norms, which the global norm needs anyway. If other ranks have parts of the gradients,
/// `over_ranks` returns the norms of the whole gradients, float32 [gradients], from those of this rank's parts.
GradientNorms clip_grad_norm(const std::vector<at::Tensor>& gradients, std::optional<double> max_norm,
                             const std::vector<std::size_t>& group_of, std::size_t groups,
                             ClipMode mode = ClipMode::global, const std::function<at::Tensor(const at::Tensor&)>& over_ranks = {});

}  // namespace tessera
