#include <algorithm>
#include <cmath>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "src/models/autocast.h"
#include "tests/support/error_of.h"
#include "tests/support/gradcheck.h"
#include <tessera/ops/roi_align.h>

namespace tessera {
namespace {

struct RegionInputs {
  at::Tensor features;  // [3, 5, 7, 4], float64
  at::Tensor boxes;     // [K, 4], corners
  at::Tensor image;     // [K], index of each box's image
};

/// Returns inputs with boxes of all kinds: inside the image, across its borders, outside, of width 0, with swapped corners, and as large as
/// the image. All values of these inputs are exact in float32 and in bfloat16.
RegionInputs random_inputs() {
  at::manual_seed(3);
  const std::vector<double> corners = {0,   0,   7,    5, 1.25, 0.5, 3.75, 4.5, -2,   -3,  2.5,  1.5,
                                       5.5, 3.5, 9.75, 8, 20,   20,  30,   30,  2,    2,   2,    4,
                                       4,   3,   1,    1, -40,  -40, 60,   60,  2.25, 2.5, 2.75, 2.75};
  return {at::randn({3, 5, 7, 4}).to(at::kBFloat16).to(at::kDouble), at::tensor(corners, at::kDouble).view({-1, 4}),
          at::tensor(std::vector<std::int64_t>{0, 1, 2, 1, 0, 2, 2, 0, 1})};
}

double interpolated(const at::TensorAccessor<double, 3>& map, double y, double x, std::int64_t channel) {
  const std::int64_t height = map.size(0), width = map.size(1);
  if (y < -1 || y > static_cast<double>(height) || x < -1 || x > static_cast<double>(width)) return 0;
  y = std::clamp(y, 0.0, static_cast<double>(height - 1));
  x = std::clamp(x, 0.0, static_cast<double>(width - 1));
  const auto top = static_cast<std::int64_t>(y), left = static_cast<std::int64_t>(x);
  const std::int64_t bottom = std::min(top + 1, height - 1), right = std::min(left + 1, width - 1);
  const double down = y - static_cast<double>(top), across = x - static_cast<double>(left);
  return (1 - down) * ((1 - across) * map[top][left][channel] + across * map[top][right][channel]) +
         down * ((1 - across) * map[bottom][left][channel] + across * map[bottom][right][channel]);
}

/// Computes RoIAlign (Mask R-CNN, section 3) point by point.
at::Tensor expected_regions(const RegionInputs& in, const RoiAlignSettings& settings) {
  const auto [rows, columns] = settings.output_size;
  const at::Tensor out = at::zeros({in.boxes.size(0), rows, columns, in.features.size(3)}, at::kDouble);
  auto to = out.accessor<double, 4>();
  const auto box = in.boxes.accessor<double, 2>();
  for (std::int64_t k = 0; k < in.boxes.size(0); ++k) {
    const at::Tensor own = in.features[in.image[k].item<std::int64_t>()];
    const auto map = own.accessor<double, 3>();
    const double shift = settings.aligned ? 0.5 : 0, left = box[k][0] - shift, top = box[k][1] - shift;
    double width = box[k][2] - box[k][0], height = box[k][3] - box[k][1];
    if (!settings.aligned) width = std::max(width, 1.0), height = std::max(height, 1.0);
    width /= static_cast<double>(columns), height /= static_cast<double>(rows);
    const auto ratio = static_cast<int>(settings.sampling_ratio);
    const int down = ratio > 0 ? ratio : static_cast<int>(std::ceil(height));
    const int across = ratio > 0 ? ratio : static_cast<int>(std::ceil(width));
    for (std::int64_t at = 0; at < out[k].numel(); ++at) {
      const std::int64_t channel = at % out.size(3), column = at / out.size(3) % columns,
                         row = at / out.size(3) / columns;
      for (int i = 0; i < down; ++i)
        for (int j = 0; j < across; ++j)
          to[k][row][column][channel] +=
              interpolated(map, top + (static_cast<double>(row) + (i + 0.5) / down) * height,
                           left + (static_cast<double>(column) + (j + 0.5) / across) * width, channel) /
              (down * across);
    }
  }
  return out;
}

std::vector<RoiAlignSettings> all_region_settings() {
  std::vector<RoiAlignSettings> out;
  for (const std::array<std::int64_t, 2> size : {std::array<std::int64_t, 2>{1, 1}, {2, 3}, {7, 7}})
    for (const std::int64_t ratio : {-1, 0, 1, 3})
      for (const bool aligned : {true, false}) out.push_back({size, ratio, aligned});
  return out;
}

at::Tensor region_leaf(const at::Tensor& values, at::ScalarType dtype, at::Device device = at::kCPU) {
  return values.detach().to(device, dtype).requires_grad_(true);
}

at::Tensor gradient_of(const at::Tensor& features, const RegionInputs& in, const RoiAlignSettings& settings) {
  const at::Tensor out =
      roi_align(features, in.boxes.to(features.device(), at::kFloat), in.image.to(features.device()), settings);
  const at::Tensor weights = at::arange(1, out.numel() + 1, at::kDouble).cos().view(out.sizes()).to(at::kBFloat16);
  return torch::autograd::grad({(out * weights.to(out.options())).sum()}, {features})[0];
}

TEST(RoiAlignOperator, MatchesTheDefinitionInFloat32And64) {
  const RegionInputs in = random_inputs();
  for (const RoiAlignSettings& settings : all_region_settings()) {
    SCOPED_TRACE(testing::Message() << settings.output_size[0] << " rows, ratio " << settings.sampling_ratio
                                    << ", aligned " << settings.aligned);
    const at::Tensor right = expected_regions(in, settings);
    EXPECT_TRUE(at::allclose(roi_align(in.features, in.boxes, in.image, settings), right, 1e-12, 1e-12));
    const at::Tensor ours = roi_align(in.features.to(at::kFloat), in.boxes.to(at::kFloat), in.image, settings);
    EXPECT_EQ(ours.scalar_type(), at::kFloat);
    EXPECT_TRUE(at::allclose(ours.to(at::kDouble), right, 1e-5, 1e-6));
  }
}

TEST(RoiAlignOperator, GradientMatchesFiniteDifferences) {
  const RegionInputs in = random_inputs();
  for (const RoiAlignSettings& settings : {RoiAlignSettings{}, RoiAlignSettings{{2, 3}, 2, false}}) {
    const at::Tensor features = region_leaf(in.features.slice(3, 0, 2), at::kDouble);
    const at::Tensor weights = at::randn_like(roi_align(features, in.boxes, in.image, settings));
    expect_gradients_match({features},
                           [&] { return (roi_align(features, in.boxes, in.image, settings) * weights).sum(); });
  }
}

TEST(RoiAlignOperator, GradientsOfTheKernelsMatchFloat64) {
  const RegionInputs in = random_inputs();
  for (const RoiAlignSettings& settings : all_region_settings()) {
    const at::Tensor theirs = gradient_of(region_leaf(in.features, at::kDouble), in, settings);
    EXPECT_TRUE(
        at::allclose(gradient_of(region_leaf(in.features, at::kFloat), in, settings).to(at::kDouble), theirs, 1e-5, 1e-5));
  }
}

TEST(RoiAlignOperator, NarrowTypesAreSummedInFloat) {
  const RegionInputs in = random_inputs();
  const at::Tensor wide = region_leaf(in.features, at::kFloat), boxes = in.boxes.to(at::kFloat);
  for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
    const at::Tensor narrow = region_leaf(in.features, dtype), out = roi_align(narrow, boxes, in.image, {{2, 3}});
    EXPECT_EQ(out.scalar_type(), dtype);
    EXPECT_TRUE(at::equal(out, roi_align(wide, boxes, in.image, {{2, 3}}).to(dtype)));
    EXPECT_TRUE(at::equal(gradient_of(narrow, in, {{2, 3}}), gradient_of(wide, in, {{2, 3}}).to(dtype)));
  }
}

TEST(RoiAlignOperator, AcceptsViewsAndIgnoresAutocast) {
  const RegionInputs in = random_inputs();
  const at::Tensor boxes = in.boxes.to(at::kFloat);
  const at::Tensor with_class_token = at::cat({at::randn({3, 1, 4}), in.features.to(at::kFloat).flatten(1, 2)}, 1);
  const at::Tensor view = with_class_token.slice(1, 1).unflatten(1, {5, 7});
  const at::Tensor right = roi_align(in.features.to(at::kFloat), boxes, in.image);
  EXPECT_TRUE(at::equal(roi_align(view, boxes, in.image), right));
  const Autocast autocast(at::kCPU);
  EXPECT_TRUE(at::equal(roi_align(view, boxes, in.image), right));
}

TEST(RoiAlignOperator, WithoutBoxesTheOutputIsEmptyAndTheGradientZero) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    const at::Tensor features = region_leaf(at::randn({2, 3, 3, 4}), dtype);
    const at::Tensor out = roi_align(features, at::zeros({0, 4}), at::zeros({0}, at::kLong), {{2, 3}});
    EXPECT_EQ(out.sizes(), (std::vector<std::int64_t>{0, 2, 3, 4}));
    EXPECT_TRUE(at::equal(torch::autograd::grad({out.sum()}, {features})[0], at::zeros_like(features)));
  }
}

TEST(RoiAlignOperator, ErrorsNameWrongInputs) {
  const at::Tensor features = at::zeros({2, 3, 4, 5}), boxes = at::zeros({3, 4}), image = at::zeros({3}, at::kLong);
  const auto error = [](const auto&... arguments) { return error_of<c10::Error>([&] { roi_align(arguments...); }); };
  EXPECT_EQ(error(features[0], boxes, image), "roi_align: features must be floating [B, H, W, C], got Float [3, 4, 5]");
  EXPECT_EQ(error(features.slice(1, 0, 0), boxes, image),
            "roi_align: features must hold at least one number, got [2, 0, 4, 5]");
  EXPECT_EQ(error(features, at::zeros({3, 5}), image), "roi_align: boxes must be floating [K, 4], got Float [3, 5]");
  EXPECT_EQ(error(features, boxes, at::zeros({2}, at::kLong)),
            "roi_align: image must be int64 [K] = [3], got Long [2]");
  EXPECT_EQ(error(features, boxes, at::zeros({3})), "roi_align: image must be int64 [K] = [3], got Float [3]");
  EXPECT_EQ(error(features, boxes, image, RoiAlignSettings{{0, 1}}),
            "roi_align: output_size must be two numbers of at least 1, got [0, 1]");
  EXPECT_EQ(error(features, boxes, image + 2), "roi_align: box 0 belongs to image 2, but there are 2 images");
  EXPECT_EQ(error(features.to(at::kDouble), boxes, image - 1), "roi_align: image must be in 0..1, got -1..-1");
  const at::Tensor meta = boxes.to(at::kMeta);
  EXPECT_EQ(error(features, meta, image), "roi_align: boxes is on meta, features on cpu");
}

TEST(RoiAlignOperator, OnAGpuMatchesTheCpu) {
  if (!at::globalContext().hasCUDA()) GTEST_SKIP() << "no GPU";
  const RegionInputs in = random_inputs();
  for (const RoiAlignSettings& settings : all_region_settings()) {
    const at::Tensor right = gradient_of(region_leaf(in.features, at::kDouble), in, settings);
    for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kDouble}) {
      const double tolerance = dtype == at::kBFloat16 ? 2e-2 : 1e-5;
      const at::Tensor ours = region_leaf(in.features, dtype, at::kCUDA);
      const at::Tensor out = roi_align(ours, in.boxes.to(at::kCUDA, at::kFloat), in.image.to(at::kCUDA), settings);
      EXPECT_TRUE(at::allclose(out.cpu().to(at::kDouble), expected_regions(in, settings), tolerance, tolerance));
      EXPECT_TRUE(at::allclose(gradient_of(ours, in, settings).cpu().to(at::kDouble), right, tolerance, tolerance));
    }
  }
}

}  // namespace
}  // namespace tessera
