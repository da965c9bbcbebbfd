#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace tessera {

/// Switches autocast off while the object exists, so that losses, norms and softmax compute in float32 even if the caller uses autocast.
class NoAutocast {
 public:
  NoAutocast() : guard_(c10::autocast_dispatch_keyset) {}

 private:
  c10::impl::ExcludeDispatchKeyGuard guard_;
};

/// Switches TF32 off for matrix products on GPUs while the object exists, if `wanted` is true.
class Float32Products {
 public:
  explicit Float32Products(bool wanted = true);
  ~Float32Products();
  Float32Products(const Float32Products&) = delete;
  Float32Products& operator=(const Float32Products&) = delete;

 private:
  bool changed_;
};

/// Returns the type in which losses are computed: float64 for float64 (for gradient checks), float32 for everything else.
inline at::ScalarType compute_dtype(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}
inline at::Tensor to_compute(const at::Tensor& tensor) {
  return tensor.to(compute_dtype(tensor));
}

/// Returns x / max(||x||, 1e-12) over the last dimension.
at::Tensor unit_rows(const at::Tensor& x);

/// Returns the most negative finite number of a type, which is the value for masked logits. Unlike minus infinity, it causes no NaN in a
/// row that is entirely masked.
double lowest(at::ScalarType dtype);

}  // namespace tessera
