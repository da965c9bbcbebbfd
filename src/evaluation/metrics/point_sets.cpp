#include <limits>

#include <ATen/ATen.h>

#include "src/evaluation/metrics/point_sets.h"
#include <tessera/base/random.h>

namespace tessera::metrics {
namespace {

constexpr double kExaggeration = 12;
constexpr double kStartDeviation = 1e-4;

/// Returns the squared distances of the rows to each other, [N, N], 0 on the diagonal.
at::Tensor squared_distances(const at::Tensor& rows) {
  const at::Tensor squares = rows.square().sum(1);
  return (squares.unsqueeze(1) + squares.unsqueeze(0) - 2 * rows.matmul(rows.t())).clamp_min_(0).fill_diagonal_(0);
}

/// Returns, for each row, the indices of the k nearest other rows: [N, k].
at::Tensor nearest_others(const at::Tensor& rows, std::int64_t k) {
  return std::get<1>(squared_distances(rows.to(at::kDouble)).fill_diagonal_(INFINITY).topk(k, 1, /*largest=*/false));
}

constexpr std::uint64_t kStarts = 10;
constexpr int kMostRounds = 100;

struct Clusters {
  at::Tensor of_point;  // int64 [n]
  double error = std::numeric_limits<double>::infinity();
};

/// Returns the squared distances of n points to k centers, [n, k].
at::Tensor distances(const at::Tensor& points, const at::Tensor& centers) {
  return (points.unsqueeze(1) - centers.unsqueeze(0)).square().sum(2);
}

/// Chooses centers by k-means++. The first center is a random point; each of the others is a point drawn with a probability
/// proportional to its squared distance from the nearest center so far.
at::Tensor first_centers(const at::Tensor& points, std::int64_t clusters, Random& random) {
  std::vector<at::Tensor> centers = {points[random.below(points.size(0))]};
  while (std::ssize(centers) < clusters) {
    const at::Tensor reach = std::get<0>(distances(points, at::stack(centers)).min(1)).cumsum(0);
    const double total = reach[-1].item<double>();
    const std::int64_t next = total > 0 ? reach.le(random.uniform() * total).sum().item<std::int64_t>()
                                        : random.below(points.size(0));  // all points coincide with a center
    centers.push_back(points[std::min(next, points.size(0) - 1)]);
  }
  return at::stack(centers);
}

Clusters from_start(const at::Tensor& points, std::int64_t clusters, Random random) {
  Clusters out;
  at::Tensor centers = first_centers(points, clusters, random);
  for (int round = 0; round < kMostRounds; ++round) {
    const auto [nearest, own] = distances(points, centers).min(1);
    out.error = nearest.sum().item<double>();
    if (out.of_point.defined() && at::equal(own, out.of_point)) break;
    out.of_point = own;
    const at::Tensor member =
        own.unsqueeze(0).eq(at::arange(clusters, at::kLong).unsqueeze(1)).to(points.scalar_type());
    const at::Tensor count = member.sum(1, /*keepdim=*/true);  // a cluster without points keeps its center
    centers = at::where(count > 0, member.matmul(points) / count.clamp_min(1), centers);
  }
  return out;
}

}  // namespace

Plane principal_plane(const at::Tensor& features) {
  TORCH_CHECK(features.dim() == 2 && features.size(0) >= 2 && features.size(1) >= 2,
              "principal_plane: features must be [N, D] with two of each at least, got ", features.sizes());
  const at::Tensor rows = features.to(at::kDouble);
  const at::Tensor centered = rows - rows.mean(0, true);
  const auto [u, s, vh] = at::linalg_svd(centered, /*full_matrices=*/false);
  const at::Tensor axes = vh.narrow(0, 0, 2);  // [2, D]
  const at::Tensor greatest = axes.gather(1, axes.abs().argmax(1, true));
  const double all = s.square().sum().item<double>();
  const at::Tensor points = centered.matmul((axes * greatest.sign()).t());
  return {points, all > 0 ? s.narrow(0, 0, 2).square().sum().item<double>() / all : 0};
}

at::Tensor tsne_affinities(const at::Tensor& features, double perplexity) {
  const at::Tensor distances = squared_distances(features.to(at::kDouble));
  const std::int64_t count = distances.size(0);
  const double entropy = std::log(std::min(perplexity, static_cast<double>(count - 1) / 3));
  // For each row, finds the precision of the Gaussian that has the given perplexity, by bisection on the logarithm of the precision.
  // Distances are measured in units of the mean distance.
  const double mean = distances.mean().item<double>(), scale = mean > 0 ? mean : 1;
  at::Tensor low = at::full({count, 1}, -25.0, at::kDouble), high = at::full({count, 1}, 25.0, at::kDouble), p;
  for (int step = 0; step < 60; ++step) {
    const at::Tensor middle = (low + high) / 2;
    at::Tensor logits = distances * (-middle.exp() / scale);
    logits.fill_diagonal_(-INFINITY);
    p = logits.softmax(1);
    const at::Tensor own = -(p * p.clamp_min(1e-300).log()).sum(1, true);
    const at::Tensor wide = own.gt(entropy);
    low = at::where(wide, middle, low);
    high = at::where(wide, high, middle);
  }
  return (p + p.t()) / (2.0 * static_cast<double>(count));
}

at::Tensor tsne(const at::Tensor& features, const TsneSettings& settings) {
  TORCH_CHECK(features.dim() == 2 && features.size(0) >= 4, "tsne: features must be [N, D] with N at least 4, got ",
              features.sizes());
  const at::Tensor p = tsne_affinities(features, settings.perplexity).clamp_min(1e-12);
  const auto count = static_cast<double>(features.size(0));
  at::Tensor y = principal_plane(features).points;
  y = y * (kStartDeviation / std::max(y.select(1, 0).std().item<double>(), 1e-300));
  at::Tensor velocity = at::zeros_like(y), gains = at::ones_like(y);
  for (std::int64_t i = 0; i < settings.iterations; ++i) {
    const bool early = 2 * i < settings.iterations;
    const at::Tensor near = (squared_distances(y) + 1).reciprocal().fill_diagonal_(0);
    const at::Tensor force = (p * (early ? kExaggeration : 1.0) - near / near.sum()) * near;
    const at::Tensor gradient = 4 * (y * force.sum(1, true) - force.matmul(y));
    const at::Tensor turned = gradient.sign().ne(velocity.sign());
    gains = at::where(turned, gains + 0.2, gains * 0.8).clamp_min(0.01);
    const double rate = early ? count / kExaggeration / 4 : count / 4;
    velocity = velocity * (early ? 0.5 : 0.8) - rate * gains * gradient;
    y = y + velocity;
    y = y - y.mean(0, true);
  }
  return y;
}

double neighbors_kept(const at::Tensor& features, const at::Tensor& map, std::int64_t k) {
  k = std::min(k, features.size(0) - 1);
  const at::Tensor before = nearest_others(features, k), after = nearest_others(map, k);
  return before.unsqueeze(2).eq(after.unsqueeze(1)).any(2).to(at::kDouble).mean().item<double>();
}

at::Tensor k_means(const at::Tensor& points, std::int64_t clusters) {
  TORCH_CHECK(points.dim() == 2 && clusters > 0, "k_means: points must be [n, W], got ", points.sizes());
  if (points.size(0) <= clusters) return at::arange(points.size(0), at::kLong);
  const at::Tensor exact = points.to(at::kCPU, at::kDouble);
  Clusters best;
  for (std::uint64_t start = 0; start < kStarts; ++start) {
    Clusters found = from_start(exact, clusters, Random(0, Purpose::initialization, {start}));
    if (found.error < best.error) best = std::move(found);
  }
  TORCH_CHECK(best.of_point.defined(), "k_means: points must be finite");
  return best.of_point;
}

}  // namespace tessera::metrics
