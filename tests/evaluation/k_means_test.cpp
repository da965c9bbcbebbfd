#include "src/evaluation/metrics/point_sets.h"

#include <cmath>
#include <limits>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace tessera::metrics {
namespace {

// Returns the sum of the squared distances from the points to the means of their clusters.
double error_of(const at::Tensor& points, const at::Tensor& cluster) {
  double sum = 0;
  for (std::int64_t k = 0; k <= cluster.max().item<std::int64_t>(); ++k) {
    const at::Tensor own = points.index_select(0, cluster.eq(k).nonzero().squeeze(1));
    if (own.size(0) > 0) sum += (own - own.mean(0)).square().sum().item<double>();
  }
  return sum;
}

// Returns the least error over all assignments of the points to at most `clusters` clusters.
double least_error(const at::Tensor& points, std::int64_t clusters) {
  const std::int64_t count = points.size(0);
  const auto ways = static_cast<std::int64_t>(std::pow(clusters, count));
  double least = std::numeric_limits<double>::infinity();
  for (std::int64_t way = 0; way < ways; ++way) {
    std::vector<std::int64_t> cluster;
    for (std::int64_t i = 0, rest = way; i < count; ++i, rest /= clusters) cluster.push_back(rest % clusters);
    least = std::min(least, error_of(points, at::tensor(cluster, at::kLong)));
  }
  return least;
}

TEST(KMeans, FindsTheBestAssignment) {
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    at::manual_seed(seed);
    const at::Tensor points = at::randn({8, 3}, at::kDouble);
    for (const std::int64_t clusters : {1, 2, 3}) {
      const at::Tensor found = k_means(points, clusters);
      EXPECT_LT(found.max().item<std::int64_t>(), clusters);
      EXPECT_NEAR(error_of(points, found), least_error(points, clusters), 1e-9) << seed << ", " << clusters;
    }
  }
}

TEST(KMeans, GivesEachPointItsOwnClusterIfThereAreFewPoints) {
  const at::Tensor points = at::eye(3);
  EXPECT_TRUE(at::equal(k_means(points, 3), at::arange(3, at::kLong)));
  EXPECT_TRUE(at::equal(k_means(points, 5), at::arange(3, at::kLong)));
}

TEST(KMeans, PutsEqualPointsInOneCluster) {
  const at::Tensor points = at::tensor({1.0, 1.0, 1.0, 5.0, 1.0}).unsqueeze(1), found = k_means(points, 3);
  for (const std::int64_t i : {1, 2, 4}) EXPECT_TRUE(at::equal(found[i], found[0])) << i;
  EXPECT_FALSE(at::equal(found[3], found[0]));
}

TEST(KMeans, RejectsNonFinitePoints) {
  EXPECT_THROW(k_means(at::full({5, 2}, NAN), 2), c10::Error);
}

}  // namespace
}  // namespace tessera::metrics
