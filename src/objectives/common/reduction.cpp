#include "src/objectives/common/reduction.h"

#include <ATen/ATen.h>

namespace tessera {

at::Tensor mean_over_sequences(const at::Tensor& values, const at::Tensor& mask) {
  return (values.sum(1) / mask.sum(1).clamp_min(1)).mean();
}

at::Tensor mean_over_tokens(const at::Tensor& values, const at::Tensor& mask) {
  return values.sum() / mask.sum().clamp_min(1);
}

}  // namespace tessera
