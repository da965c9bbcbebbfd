#pragma once

#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

namespace tessera {

/// Square root of the sum of squares over all tensors, float32 scalar; 0 for an empty list. Does not wait for the
/// device.
at::Tensor global_norm(const std::vector<at::Tensor>& tensors);

/// Scales the gradients in place by min(1, max_norm / (norm + 1e-6)), as torch.nn.utils.clip_grad_norm_; no max_norm:
/// only measures. Returns the norm before clipping. Does not wait for the device.
at::Tensor clip_grad_norm(const std::vector<at::Tensor>& gradients, std::optional<double> max_norm);

/// What a limit on the norm is for.
enum class ClipMode {
  global,      // all gradients together, scaled by one factor
  per_tensor,  // each gradient alone, as if it were the only one (Caron et al. 2021, DINO)
};

/// Norms before clipping, float32 scalars.
struct GradientNorms {
  at::Tensor global;
  std::vector<at::Tensor> groups;
};

/// The same in either mode, with the norm of each of `groups` groups; gradient i belongs to group_of[i]. They come from
/// the norms of the tensors, which the global one needs anyway.
GradientNorms clip_grad_norm(const std::vector<at::Tensor>& gradients, std::optional<double> max_norm,
                             const std::vector<std::size_t>& group_of, std::size_t groups,
                             ClipMode mode = ClipMode::global);

}  // namespace tessera
