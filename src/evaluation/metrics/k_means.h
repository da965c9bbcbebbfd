#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace tessera::metrics {

/// k-means (Lloyd 1982): clusters with a small sum of squared distances from their points to their means, the best of 10
/// starts by k-means++ (Arthur and Vassilvitskii 2007). points [n, W] floating; returns int64 [n], numbers from 0 to
/// clusters - 1, of which points that are fewer or equal leave some unused. The same points give the same clusters.
at::Tensor k_means(const at::Tensor& points, std::int64_t clusters);

}  // namespace tessera::metrics
