#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace tessera::metrics {

/// Clusters points by k-means (Lloyd 1982): the result with the smallest sum of squared distances from 10 starts by k-means++
/// (Arthur and Vassilvitskii 2007). points [n, W] floating; returns int64 [n] in 0..clusters-1. Some numbers are unused if
/// there are fewer distinct points than clusters. The result is deterministic.
at::Tensor k_means(const at::Tensor& points, std::int64_t clusters);

}  // namespace tessera::metrics
