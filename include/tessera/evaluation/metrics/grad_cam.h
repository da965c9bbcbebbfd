#pragma once

#include <ATen/core/Tensor.h>

namespace tessera::metrics {

/// Returns the Grad-CAM map (Selvaraju et al. 2017, eq. 1 and 2): for each row, the sum of the channels weighted by their mean
/// gradient over the positions, clamped at 0. features, gradients [B, N, w] floating; returns [B, N]. Throws c10::Error if the
/// shapes do not match.
at::Tensor grad_cam(const at::Tensor& features, const at::Tensor& gradients);

}  // namespace tessera::metrics
