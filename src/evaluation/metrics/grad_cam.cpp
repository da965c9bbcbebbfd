#include <ATen/ATen.h>

#include "src/evaluation/metrics/grad_cam.h"

namespace tessera::metrics {

at::Tensor grad_cam(const at::Tensor& features, const at::Tensor& gradients) {
  TORCH_CHECK(features.dim() == 3 && features.sizes() == gradients.sizes(),
              "grad_cam: features and gradients must be [B, N, w], got ", features.sizes(), " and ", gradients.sizes());
  return (features * gradients.mean(1, true)).sum(2).relu();
}

}  // namespace tessera::metrics
