#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace tessera::metrics {

struct Plane {
  at::Tensor points;          // [N, 2] double
  double variance_share = 0;  // of the points' variance that the two axes hold
};

/// Principal components: the rows on the two axes of greatest variance, each turned so that its greatest weight is
/// positive. features [N, D] float, N and D at least 2. Throws c10::Error otherwise.
Plane principal_plane(const at::Tensor& features);

struct TsneSettings {
  double perplexity = 30;  // counts as (N - 1) / 3 where that is less
  std::int64_t iterations = 500;
};

/// t-SNE (van der Maaten and Hinton 2008), exact: gradient descent with momentum and gains, the first half of it under
/// exaggeration by 12, rates N / 48 and N / 4, from the principal plane on. No random numbers: the same rows give the same map. features
/// [N, D] float, N at least 4; memory and time per step grow with N^2. Returns [N, 2] double.
at::Tensor tsne(const at::Tensor& features, const TsneSettings& settings = {});

/// The affinities that t-SNE keeps, p_ij of eq. 1 with the perplexity of every row, symmetric and summing to 1: [N, N]
/// double.
at::Tensor tsne_affinities(const at::Tensor& features, double perplexity);

/// Of each point's k nearest others among `features` [N, D], the share that are among its k nearest on `map` [N, 2];
/// mean over the points. k counts as N - 1 where it is greater.
double neighbors_kept(const at::Tensor& features, const at::Tensor& map, std::int64_t k);

}  // namespace tessera::metrics
