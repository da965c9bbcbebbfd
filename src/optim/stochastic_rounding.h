#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace tessera {

/// Rounds float32 (or float64) values to bfloat16, into the tensor `to` of the same shape. A value between two bfloat16 values becomes the
/// one that is further from zero with a probability equal to the value's relative distance from the other, so the expected result is the
/// value itself (Zamirai et al. 2020, "Revisiting BFloat16 Training"). Values of bfloat16, infinities and NaN stay as they are. The random
/// numbers depend only on `seed`, the element's number in memory and the kind of device; `first` is the number of the first element. Does
/// not wait for the device.
void round_stochastically(const at::Tensor& from, const at::Tensor& to, std::uint64_t seed, std::int64_t first = 0);

}  // namespace tessera
