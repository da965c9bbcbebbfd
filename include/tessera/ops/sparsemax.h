#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace tessera {

/// Returns the point of the probability simplex nearest to the scores along one dimension (Martins and Astudillo 2016):
/// max(z - tau, 0), where tau makes the sum 1. Entries at or below tau are exactly 0 and receive no gradient. Entries
/// above tau are the support; they receive g minus the mean of g over the support, where g is the gradient of the
/// result.
/// scores   any shape, floating; narrower types compute in float32
/// returns  the same shape, float32 (float64 for float64); along `dim` it sums to 1
/// Differentiable any number of times.
at::Tensor sparsemax(const at::Tensor& scores, std::int64_t dim = -1);

}  // namespace tessera
