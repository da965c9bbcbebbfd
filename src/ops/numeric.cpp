#include <limits>

#include <ATen/ATen.h>
#include <ATen/Context.h>

#include <tessera/ops/numeric.h>

namespace tessera {

Float32Products::Float32Products(bool wanted) : changed_(wanted && at::globalContext().allowTF32CuBLAS()) {
  if (changed_) at::globalContext().setAllowTF32CuBLAS(false);
}

Float32Products::~Float32Products() {
  if (changed_) at::globalContext().setAllowTF32CuBLAS(true);
}

at::Tensor unit_rows(const at::Tensor& x) {
  return x / x.norm(2, -1, /*keepdim=*/true).clamp_min(1e-12);
}

double lowest(at::ScalarType dtype) {
  return dtype == at::kDouble ? std::numeric_limits<double>::lowest() : std::numeric_limits<float>::lowest();
}

}  // namespace tessera
