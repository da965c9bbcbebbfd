#include "src/evaluation/metrics/k_means.h"

#include <limits>

#include <ATen/ATen.h>

#include <tessera/base/random.h>

namespace tessera::metrics {
namespace {

constexpr std::uint64_t kStarts = 10;
constexpr int kMostRounds = 100;

struct Clusters {
  at::Tensor of_point;  // int64 [n]
  double error = std::numeric_limits<double>::infinity();
};

/// Returns squared distances, [n, k].
at::Tensor distances(const at::Tensor& points, const at::Tensor& centers) {
  return (points.unsqueeze(1) - centers.unsqueeze(0)).square().sum(2);
}

/// Chooses centers by k-means++: the first is any point, and each next one is drawn with a probability proportional to its squared
/// distance from the nearest center so far.
at::Tensor first_centers(const at::Tensor& points, std::int64_t clusters, Random& random) {
  std::vector<at::Tensor> centers = {points[random.below(points.size(0))]};
  while (std::ssize(centers) < clusters) {
    const at::Tensor reach = std::get<0>(distances(points, at::stack(centers)).min(1)).cumsum(0);
    const double total = reach[-1].item<double>();
    const std::int64_t next = total > 0 ? reach.le(random.uniform() * total).sum().item<std::int64_t>()
                                        : random.below(points.size(0));  // every point coincides with a center
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
