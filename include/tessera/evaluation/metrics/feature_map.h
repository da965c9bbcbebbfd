#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace tessera::metrics {

struct Plane {
  at::Tensor points;          // [N, 2] double
  double variance_share = 0;  // share of the rows' variance along the two axes
};

/// Projects the rows onto their first two principal components, each signed so that its weight of greatest magnitude is
/// positive. features [N, D] float, N and D at least 2. Throws c10::Error otherwise.
Plane principal_plane(const at::Tensor& features);

struct TsneSettings {
  double perplexity = 30;  // at most (N - 1) / 3 is used
  std::int64_t iterations = 500;
};

/// Runs exact t-SNE (van der Maaten and Hinton 2008): gradient descent with momentum and gains, starting from the principal
/// plane. The first half uses exaggeration by 12 and the learning rate N / 48, the second half the rate N / 4. It is
/// deterministic. features [N, D] float, N at least 4; memory and time per step grow with N^2. Returns [N, 2] double.
at::Tensor tsne(const at::Tensor& features, const TsneSettings& settings = {});

/// Returns t-SNE's affinities p_ij of eq. 1, each row with this perplexity, made symmetric and summing to 1: [N, N] double.
at::Tensor tsne_affinities(const at::Tensor& features, double perplexity);

/// Returns the share of each point's k nearest neighbors in `features` [N, D] that are also among its k nearest in `map`
/// [N, 2], averaged over the points. At most k = N - 1 is used.
double neighbors_kept(const at::Tensor& features, const at::Tensor& map, std::int64_t k);

}  // namespace tessera::metrics
