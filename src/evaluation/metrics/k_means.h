#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace tessera::metrics {

/// Clusters points by k-means (Lloyd 1982) and returns the cluster of each point, int64 [n] in 0..clusters-1. Of 10 runs that start
/// from centers of k-means++ (Arthur and Vassilvitskii 2007), it keeps the one with the smallest sum of squared distances. The
/// result is deterministic. Some clusters are empty if there are fewer distinct points than clusters. points: floating-point [n,
/// W].
at::Tensor k_means(const at::Tensor& points, std::int64_t clusters);

}  // namespace tessera::metrics
