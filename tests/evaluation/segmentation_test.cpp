#include <cmath>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "src/evaluation/metrics/segmentation.h"

namespace tessera::metrics {
namespace {

using Corners = std::vector<std::array<std::int64_t, 2>>;

/// Returns the scores [N, 1, P] of N class names for P patches side by side; each patch is one pixel.
at::Tensor in_a_row(std::initializer_list<std::initializer_list<double>> names) {
  std::vector<at::Tensor> rows;
  for (const auto& name : names) rows.push_back(at::tensor(std::vector<double>(name)).unsqueeze(0));
  return at::stack(rows);
}

std::vector<std::int64_t> pixels(const at::Tensor& found) {
  const at::Tensor flat = found.contiguous().flatten();
  return {flat.const_data_ptr<std::int64_t>(), flat.const_data_ptr<std::int64_t>() + flat.numel()};
}

const at::Tensor kTarget = at::zeros({1, 3}, at::kLong);

TEST(SegmentPixels, ClassScoresLikeItsBestName) {
  SegmentationOptions options{.candidates = "all", .class_of_name = {0, 0, 1}};
  const at::Tensor scores = in_a_row({{0.1, 0.9, 0.2}, {0.8, 0.1, 0.1}, {0.5, 0.5, 0.3}});
  EXPECT_EQ(pixels(segment_pixels(scores, kTarget, options)), (std::vector<std::int64_t>{0, 0, 1}));
  options.candidates = "present";
  EXPECT_EQ(pixels(segment_pixels(scores, at::ones({1, 3}, at::kLong), options)), (std::vector<std::int64_t>{1, 1, 1}))
      << "names of absent classes do not count";
  options.class_of_name = {0, 1};
  EXPECT_THROW(segment_pixels(scores, kTarget, options), c10::Error) << "three names, but classes for only two";
  options.class_of_name = {1, 0, 1};
  EXPECT_THROW(segment_pixels(scores, kTarget, options), c10::Error) << "not ascending";
}

TEST(SegmentPixels, WeakPixelsAreBackground) {
  SegmentationOptions options{.candidates = "all", .background_index = 0};
  const at::Tensor scores = in_a_row({{0.0, 0.0, 0.4}, {0.2, 0.1, 0.1}, {0.1, 0.3, 0.1}});
  EXPECT_EQ(pixels(segment_pixels(scores, kTarget, options)), (std::vector<std::int64_t>{1, 2, 0}));
  options.background_threshold = {0.25, std::nullopt};
  EXPECT_EQ(pixels(segment_pixels(scores, kTarget, options)), (std::vector<std::int64_t>{0, 2, 0}));

  // The best name's probability is a softmax over three names at scale 10. For the first pixel it is e^2 / (e^0 + e^2 + e^1).
  const auto share = [](double best, double a, double b) {
    return std::exp(10 * best) / (std::exp(10 * best) + std::exp(10 * a) + std::exp(10 * b));
  };
  const double first = share(0.2, 0.0, 0.1), second = share(0.3, 0.0, 0.1);
  ASSERT_LT(first, second);
  options.background_threshold = {(first + second) / 2, 10};
  EXPECT_EQ(pixels(segment_pixels(scores, kTarget, options)), (std::vector<std::int64_t>{0, 2, 0}));
  options.background_threshold = {first - 1e-9, 10};
  EXPECT_EQ(pixels(segment_pixels(scores, kTarget, options)), (std::vector<std::int64_t>{1, 2, 0}));
  options.background_index = std::nullopt;
  EXPECT_THROW(segment_pixels(scores, kTarget, options), c10::Error) << "there is no background";
}

TEST(SegmentPixels, TiledProbabilitiesMatchASoftmax) {
  at::manual_seed(5);
  // The scores of 120 names at 200 x 200 pixels do not fit into one tile.
  const at::Tensor scores = at::randn({120, 4, 5}, at::kDouble), target = at::zeros({200, 200}, at::kLong);
  SegmentationOptions options{.candidates = "all", .background_index = 0};
  options.background_threshold = {0.05, 2.0};
  const at::Tensor maps = at::upsample_bilinear2d(scores.unsqueeze(0), {200, 200}, false).squeeze(0);
  const auto [probability, best] = (2.0 * maps).softmax(0).max(0);
  const at::Tensor expected = best.masked_fill(probability < 0.05, 0);
  ASSERT_TRUE((probability < 0.05).any().item<bool>() && (probability > 0.05).any().item<bool>());
  EXPECT_TRUE(segment_pixels(scores, target, options).equal(expected));
}

TEST(SegmentPixels, ForegroundLeavesTheBackgroundToTheThreshold) {
  SegmentationOptions options{.candidates = "foreground", .background_index = 0};
  const at::Tensor scores = in_a_row({{0.9, 0.9, 0.9}, {0.2, 0.1, 0.1}, {0.1, 0.3, 0.1}});
  EXPECT_EQ(pixels(segment_pixels(scores, kTarget, options)), (std::vector<std::int64_t>{1, 2, 1}));
  options.background_threshold = {0.15, std::nullopt};
  EXPECT_EQ(pixels(segment_pixels(scores, kTarget, options)), (std::vector<std::int64_t>{1, 2, 0}));
}

TEST(Windows, CoverTheImageAndEndAtItsEdges) {
  EXPECT_EQ(window_corners(4, 4, 4, 2), (Corners{{0, 0}}));
  EXPECT_EQ(window_corners(4, 7, 4, 2), (Corners{{0, 0}, {0, 2}, {0, 3}}));
  EXPECT_EQ(window_corners(8, 4, 4, 4), (Corners{{0, 0}, {4, 0}}));
  EXPECT_EQ(window_corners(336, 448, 224, 112).size(), 6U);
  EXPECT_THROW(window_corners(3, 9, 4, 2), c10::Error);
}

TEST(Windows, AreAveragedWhereTheyOverlap) {
  // Two overlapping windows of 2 x 2 pixels cover 2 x 3 pixels. Each window has one patch, so all its pixels have equal scores.
  const at::Tensor scores = at::tensor({1.0, 5.0}).view({2, 1, 1, 1});
  const at::Tensor joined = join_windows(scores, {{0, 0}, {0, 1}}, 2, 2, 3);
  EXPECT_TRUE(joined.equal(at::tensor({1.0F, 3.0F, 5.0F, 1.0F, 3.0F, 5.0F}).view({1, 2, 3}))) << joined;
}

TEST(Windows, AreUpsampledSeparately) {
  at::manual_seed(6);
  const at::Tensor scores = at::randn({2, 3, 2, 2});
  const at::Tensor joined = join_windows(scores, {{0, 0}, {0, 8}}, 8, 8, 16);
  const at::Tensor apart = at::upsample_bilinear2d(scores, {8, 8}, false);
  EXPECT_TRUE(joined.equal(at::cat({apart[0], apart[1]}, 2))) << "windows that do not overlap are concatenated";
}

}  // namespace
}  // namespace tessera::metrics
