// Tests linear probes of frozen patch features, on an embedder with known features.

#include <algorithm>
#include <array>
#include <cmath>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/evaluation/color_embedder.h"
#include "tests/evaluation/task_case.h"
#include <tessera/base/random.h>
#include <tessera/evaluation/embedder_view.h>

namespace tessera {
namespace {

constexpr std::int64_t kSide = 64, kPatches = 16;

/// Embeds each patch as its mean color. A blind embedder embeds all patches alike.
class PatchColors final : public EmbedderView {
 public:
  PatchColors(const Embedder& embedder, bool blind) : EmbedderView(embedder), blind_(blind) {}
  const Preprocessing& preprocessing() const override { return preprocessing_; }
  config::Size grid() const override { return kPatches; }
  using Embedder::encode_images;
  TowerFeatures encode_images(const TowerInput& images, const ViewNeeds& needs) const override {
    TowerFeatures out = EmbedderView::encode_images(images, needs);
    if (needs.encoder_tokens)
      out.encoder_tokens =
          at::avg_pool2d(images.pixels.to(at::kFloat), kSide / kPatches).flatten(2).transpose(1, 2) * (blind_ ? 0 : 1);
    return out;
  }

 private:
  bool blind_;
  Preprocessing preprocessing_ = [] {
    Preprocessing out;
    out.image_size = kSide;
    return out;
  }();
};

TaskResult probe(bool blind, const std::string& more = "") {
  const test::ColorEmbedder colors;
  const PatchColors embedder(colors, blind);
  const std::string yaml =
      "{name: segmentation_probe, train: {name: shapes, size: 60, label: color}, source: {name: shapes, split: test, size: 20, "
      "label: color}" + more + "}";
  return check_and_run(task_of(yaml), embedder, {});
}

TEST(SegmentationProbe, LearnsWhatPatchesDistinguish) {
  const TaskResult seeing = probe(false), blind = probe(true);
  EXPECT_EQ(seeing.samples, 20);
  EXPECT_GT(metric(seeing, "dataset_miou"), 0.3);
  EXPECT_GT(metric(seeing, "pixel_accuracy"), metric(blind, "pixel_accuracy"));
  EXPECT_LT(metric(blind, "dataset_miou"), 0.05) << "every patch is background";
  EXPECT_TRUE(contains(seeing.data, "(fitted on 3,840 patches of"));
  EXPECT_EQ(seeing.metrics, probe(false).metrics);
}

TEST(SegmentationProbe, IgnoredClassesCountNeitherInTheFitNorInTheScores) {
  const TaskResult all = probe(false), objects = probe(false, ", ignore: [background]");
  EXPECT_FALSE(contains(objects.data, "3,840"));
  EXPECT_FALSE(by_name(objects).contains("dataset_miou_with_background")) << "no class is background";
  EXPECT_GT(metric(objects, "dataset_miou"), metric(all, "dataset_miou")) << "no pixels are lost to the background";
  EXPECT_GT(metric(objects, "dataset_miou"), metric(probe(true, ", ignore: [background]"), "dataset_miou"));
}

TEST(SegmentationProbe, RejectsAnUnknownIgnoredClass) {
  EXPECT_THROW(probe(false, ", ignore: [sky]"), UserError);
}

TEST(SegmentationProbe, TakesSomePatchesOfEachImage) {
  const TaskResult few = probe(false, ", patches_per_image: 5, max_train_samples: 30");
  EXPECT_TRUE(contains(few.data, "(fitted on 150 patches of"));
}

TEST(SegmentationProbe, RejectsDataWithOtherClasses) {
  EXPECT_THROW(probe(false, ", classes: [background, thing]"), UserError);
}

/// Images of squares in random colors. A square's depth is unit * exp(red - green / 2), with colors in [0, 1]. The first image
/// has no known depths, and the other images have none in their first row of pixels.
class FarSquares final : public IndexedSource {
 public:
  FarSquares(std::uint64_t seed, double unit = 1) : seed_(seed), unit_(unit) {}
  std::int64_t size() const override { return 12; }
  Sample get(std::int64_t index) const override {
    Random random(seed_, Purpose::shuffle, {static_cast<std::uint64_t>(index)});
    constexpr std::int64_t side = kSide / kPatches;
    Sample sample;
    sample.key = std::to_string(index);
    sample.image = {kSide, kSide, std::vector<std::uint8_t>(3 * kSide * kSide)};
    sample.depth.resize(kSide * kSide);
    for (std::int64_t square = 0; square < kPatches * kPatches; ++square) {
      std::array<std::uint8_t, 3> color{};
      for (std::uint8_t& part : color) part = static_cast<std::uint8_t>(255 * random.uniform());
      for (std::int64_t i = 0; i < side * side; ++i) {
        const std::int64_t y = square / kPatches * side + i / side, x = square % kPatches * side + i % side;
        const auto place = static_cast<std::size_t>(y * kSide + x);
        std::ranges::copy(color, sample.image.pixels.begin() + static_cast<std::ptrdiff_t>(3 * place));
        if (index > 0 && y > 0) sample.depth[place] = static_cast<float>(unit_ * std::exp((color[0] - color[1] / 2.0) / 255));
      }
    }
    return sample;
  }
  std::string describe() const override { return "far squares"; }

 private:
  std::uint64_t seed_;
  double unit_;
};

TaskResult probe_depth(bool blind, double unit = 1, const std::string& more = "") {
  const test::ColorEmbedder colors;
  const PatchColors embedder(colors, blind);
  EvaluationContext context;
  context.train_source = std::make_shared<FarSquares>(1);
  context.source = std::make_shared<FarSquares>(2, unit);
  return check_and_run(task_of("{name: depth_probe" + more + "}"), embedder, context);
}

TEST(DepthProbe, LearnsDepthsThatAreALinearMapOfPatches) {
  const TaskResult seeing = probe_depth(false), blind = probe_depth(true);
  EXPECT_EQ(seeing.samples, 12);
  // The predicted depth map is not exact, because it is interpolated bilinearly between patches.
  EXPECT_LT(metric(seeing, "rms_error"), 0.7 * metric(blind, "rms_error"));
  EXPECT_GT(metric(seeing, "delta1_accuracy"), metric(blind, "delta1_accuracy") + 0.2);
  EXPECT_TRUE(contains(seeing.data, "(fitted on 2,816 patches of far squares)"));
  EXPECT_EQ(seeing.outcomes[0].entries.size(), 11U) << "one image has no known depth";
}

/// If features carry no information, the probe can only learn its bias, which is the mean logarithm of the patches' depths.
TEST(DepthProbe, BlindModelPredictsTheGeometricMean) {
  double sum = 0;
  std::int64_t count = 0;
  const FarSquares train(1), test(2);
  constexpr std::int64_t side = kSide / kPatches;
  for (std::int64_t i = 1; i < train.size(); ++i)
    for (const float depth : train.get(i).depth)
      if (depth > 0) {
        sum += std::log(depth);
        ++count;
      }
  // The patches of the first row have known depths in only three of four pixel rows, but each of these patches counts as much as any other
  // patch.
  double top = 0;
  for (std::int64_t i = 1; i < train.size(); ++i)
    for (std::int64_t p = 0; p < side * kSide; ++p)
      if (const float depth = train.get(i).depth[static_cast<std::size_t>(p)]; depth > 0) top += std::log(depth);
  const double of_patches = (sum - top) / (side * side) + top / (side * (side - 1));
  const double guess = std::exp(of_patches / (11 * kPatches * kPatches));
  double rms = 0;
  for (std::int64_t i = 1; i < test.size(); ++i) {
    double squares = 0;
    for (const float depth : test.get(i).depth)
      if (depth > 0) squares += (depth - guess) * (depth - guess);
    rms += std::sqrt(squares / (kSide * (kSide - 1))) / 11;
  }
  EXPECT_NEAR(metric(probe_depth(true), "rms_error"), rms, 1e-6);
}

TEST(DepthProbe, IgnoresPixelsOutOfRange) {
  const TaskResult near = probe_depth(true, 1, ", nearest: 1, farthest: 1.0001");
  EXPECT_LT(metric(near, "rms_error"), 1e-4);
  EXPECT_THROW(probe_depth(true, 1, ", nearest: 100, farthest: 200"), UserError);
  EXPECT_THROW(probe_depth(true, 1, ", nearest: 2, farthest: 1"), UserError);
  EXPECT_NEAR(metric(probe_depth(true, 2), "relative_error"), 0.5, 0.1);
}

}  // namespace
}  // namespace tessera
