#pragma once

#include <ATen/core/Tensor.h>

namespace tessera::metrics {

/// Grad-CAM (Selvaraju et al. 2017, eq. 1 and 2): of each row the channels weighted by their mean gradient over the positions,
/// summed, and what is below 0 cut off. features, gradients [B, N, w] floating; returns [B, N]. Throws c10::Error for shapes
/// that do not match.
at::Tensor grad_cam(const at::Tensor& features, const at::Tensor& gradients);

}  // namespace tessera::metrics
