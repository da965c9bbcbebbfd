// Tests PCA and t-SNE, which reduce features to points in a plane, and Grad-CAM.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "src/evaluation/metrics/point_sets.h"
#include "src/evaluation/metrics/localization.h"

namespace tessera::metrics {
namespace {

/// Returns three distant clusters of `each` points in `width` dimensions.
at::Tensor three_clusters(std::int64_t each, std::int64_t width) {
  at::manual_seed(5);
  const at::Tensor noise = at::randn({3, each, width}, at::kDouble);
  return (noise + 20 * at::eye(3, at::kDouble).repeat({1, width / 3 + 1}).slice(1, 0, width).unsqueeze(1))
      .flatten(0, 1);
}

TEST(FeatureMap, PrincipalPlaneHasTheGreatestVariance) {
  // The points are the corners of a flat rectangle in 3 dimensions, 4 units long and 1 unit wide, which is then rotated.
  const at::Tensor corners =
      at::tensor({-2.0, -0.5, 0.0, -2.0, 0.5, 0.0, 2.0, -0.5, 0.0, 2.0, 0.5, 0.0}, at::kDouble).view({4, 3});
  at::manual_seed(1);
  const at::Tensor turn = std::get<0>(at::linalg_qr(at::randn({3, 3}, at::kDouble)));
  const Plane plane = principal_plane(corners.matmul(turn) + 7);
  EXPECT_NEAR(plane.variance_share, 1, 1e-12);
  EXPECT_TRUE(plane.points.abs().select(1, 0).allclose(at::full({4}, 2.0, at::kDouble)));
  EXPECT_TRUE(plane.points.abs().select(1, 1).allclose(at::full({4}, 0.5, at::kDouble)));
  EXPECT_TRUE(principal_plane(corners.matmul(turn) + 7).points.equal(plane.points));
  EXPECT_THROW(principal_plane(at::zeros({1, 3})), c10::Error);
}

TEST(FeatureMap, AffinitiesHaveTheRequestedPerplexity) {
  const at::Tensor rows = three_clusters(12, 6);
  const at::Tensor p = tsne_affinities(rows, 8);
  EXPECT_NEAR(p.sum().item<double>(), 1, 1e-12);
  EXPECT_TRUE(p.equal(p.t()));
  EXPECT_EQ(p.diagonal().abs().max().item<double>(), 0);
  // Four equidistant points have uniform affinities at any precision of the Gaussian kernel. Four points cannot have the perplexity 50, so
  // it is lowered to 1.
  const at::Tensor even = tsne_affinities(at::eye(4, at::kDouble), 50);
  EXPECT_TRUE(even.allclose((at::ones({4, 4}, at::kDouble) - at::eye(4, at::kDouble)) / 12));
}

TEST(FeatureMap, TsneKeepsClustersApartAndIsDeterministic) {
  const at::Tensor rows = three_clusters(20, 9);
  const at::Tensor map = tsne(rows, {.perplexity = 10, .iterations = 200});
  EXPECT_TRUE(map.isfinite().all().item<bool>());
  const at::Tensor nearest = std::get<1>(at::cdist(map, map).fill_diagonal_(INFINITY).topk(5, 1, false));
  const at::Tensor own = at::arange(60, at::kLong).div(20, "floor").unsqueeze(1);
  EXPECT_TRUE(nearest.div(20, "floor").eq(own).all().item<bool>()) << "neighbors belong to the same cluster";
  EXPECT_TRUE(tsne(rows, {.perplexity = 10, .iterations = 200}).allclose(map));
  EXPECT_TRUE(tsne(at::zeros({5, 3}), {.iterations = 10}).isfinite().all().item<bool>()) << "equal points also have a finite map";
}

TEST(FeatureMap, NeighborsKeptIsAShare) {
  const at::Tensor line = at::arange(6, at::kDouble).unsqueeze(1);
  EXPECT_DOUBLE_EQ(neighbors_kept(line, line, 2), 1);
  EXPECT_DOUBLE_EQ(neighbors_kept(line, line, 100), 1) << "all other points are neighbors";
  // The nearest neighbors of 0, 1, 2.1 and 9 are 1, 0, 1 and 2.1. In the map, the point 9 is at -0.5 instead, so it and the point 0 become
  // each other's nearest neighbors. Only two of the four points, 1 and 2.1, keep their nearest neighbor.
  const at::Tensor before = at::tensor({0.0, 1.0, 2.1, 9.0}, at::kDouble).unsqueeze(1);
  const at::Tensor after = at::tensor({0.0, 1.0, 2.1, -0.5}, at::kDouble).unsqueeze(1);
  EXPECT_DOUBLE_EQ(neighbors_kept(before, after, 1), 0.5);
}

TEST(GradCam, WeighsChannelsByTheirMeanGradient) {
  const at::Tensor features = at::tensor({1.0, 2.0, 3.0, -1.0, 0.0, 5.0}, at::kDouble).view({1, 3, 2});
  const at::Tensor gradients =
      at::tensor({3.0, 0.0, 0.0, -1.5, 0.0, 0.0}, at::kDouble).view({1, 3, 2});  // the channels' means are 1 and -0.5
  EXPECT_TRUE(grad_cam(features, gradients).equal(at::tensor({0.0, 3.5, 0.0}, at::kDouble).unsqueeze(0)));
  EXPECT_THROW(grad_cam(features, gradients.squeeze(0)), c10::Error);
}

}  // namespace
}  // namespace tessera::metrics
