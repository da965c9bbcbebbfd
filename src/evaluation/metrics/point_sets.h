#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace tessera::metrics {

struct Plane {
  at::Tensor points;          // [N, 2] double
  double variance_share = 0;  // share of the rows' variance along the two axes
};

/// Projects rows onto their first two principal components. A component's sign is chosen such that its weight of greatest magnitude
/// is positive. features: float [N, D]. Throws c10::Error unless N and D are at least 2.
Plane principal_plane(const at::Tensor& features);

struct TsneSettings {
  double perplexity = 30;  // values above (N - 1) / 3 are replaced by (N - 1) / 3
  std::int64_t iterations = 500;
};

/// Runs exact t-SNE (van der Maaten and Hinton 2008): gradient descent with momentum and gains, starting from the principal plane. The
/// first half of the iterations uses an exaggeration of 12 and the learning rate N / 48; the second half uses no exaggeration and the
/// learning rate N / 4. features: float [N, D], N at least 4. Returns double [N, 2]; the result is deterministic. Memory and time per step
/// grow with N^2.
at::Tensor tsne(const at::Tensor& features, const TsneSettings& settings = {});

/// Returns t-SNE's affinities p_ij (eq. 1), double [N, N]: each row is computed to have the given perplexity; then the matrix is made
/// symmetric and scaled to sum to 1.
at::Tensor tsne_affinities(const at::Tensor& features, double perplexity);

/// Returns the share of each point's k nearest neighbors in `features` [N, D] that are also among its k nearest neighbors in `map`
/// [N, 2], averaged over the points. A k above N - 1 counts as N - 1.
double neighbors_kept(const at::Tensor& features, const at::Tensor& map, std::int64_t k);

/// Clusters points by k-means (Lloyd 1982) and returns the cluster of each point, int64 [n] in 0..clusters-1. Of 10 runs that start
/// from centers of k-means++ (Arthur and Vassilvitskii 2007), it keeps the one with the smallest sum of squared distances. The
/// result is deterministic. Some clusters are empty if there are fewer distinct points than clusters. points: floating-point [n,
/// W].
at::Tensor k_means(const at::Tensor& points, std::int64_t clusters);

}  // namespace tessera::metrics
