#include <limits>

#include <ATen/ATen.h>

#include <tessera/ops/numeric.h>

namespace tessera {

at::Tensor unit_rows(const at::Tensor& x) {
  return x / x.norm(2, -1, /*keepdim=*/true).clamp_min(1e-12);
}

double lowest(at::ScalarType dtype) {
  return dtype == at::kDouble ? std::numeric_limits<double>::lowest() : std::numeric_limits<float>::lowest();
}

}  // namespace tessera
