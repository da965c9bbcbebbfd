#pragma once

#include <ATen/core/Tensor.h>

namespace tessera::metrics {

/// Returns the Grad-CAM map (Selvaraju et al. 2017, eq. 1 and 2). At each position it is the weighted sum of the channels, where a
/// channel's weight is its gradient averaged over the positions; negative sums become 0. features and gradients: floating-point [B, N, w].
/// The result is [B, N]. Throws c10::Error if the shapes do not match.
at::Tensor grad_cam(const at::Tensor& features, const at::Tensor& gradients);

}  // namespace tessera::metrics
