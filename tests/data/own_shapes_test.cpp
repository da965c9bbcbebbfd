// Tests images that keep their aspect ratio (model.preprocessing.resize_mode: naflex), from decoding to the batch.
#include <map>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "src/data/image/image_views.h"
#include "src/data/image/patches.h"
#include "src/data/shapes/shapes.h"
#include "tests/data/batches.h"
#include "tests/data/fake_source.h"
#include <tessera/data/image/transforms.h>

namespace tessera {
namespace {

constexpr std::int64_t kPatch = 4;

Preprocessing naflex(std::int64_t max_patches) {
  return {.image_size = 16, .resize_mode = "naflex", .max_patches = max_patches, .patch_size = config::Size(kPatch)};
}

/// Returns samples with images of many shapes; the samples in `lacking` have no image.
std::shared_ptr<MemorySource> mixed_shapes(std::int64_t count, const std::set<std::int64_t>& lacking = {}) {
  const std::vector<config::Size> sizes = {{20, 40}, {31, 17}, {24, 24}, {9, 50}, {60, 13}};
  std::vector<Sample> samples = make_samples(count);
  for (std::int64_t i = 0; i < count; ++i) {
    Sample& sample = samples[static_cast<std::size_t>(i)];
    const config::Size size = sizes[static_cast<std::size_t>(i) % sizes.size()];
    sample.encoded = lacking.contains(i) ? "" : test::encode(test::noise(size.height, size.width, static_cast<std::uint64_t>(i)), ".png");
  }
  return std::make_shared<MemorySource>(std::move(samples));
}

/// Cuts pixels [3, H, W] into patches [rows * columns, 3 * h * w] with plain loops.
at::Tensor patches_of(const at::Tensor& pixels) {
  std::vector<at::Tensor> patches;
  for (std::int64_t y = 0; y < pixels.size(1); y += kPatch)
    for (std::int64_t x = 0; x < pixels.size(2); x += kPatch)
      patches.push_back(pixels.narrow(1, y, kPatch).narrow(2, x, kPatch).flatten());
  return at::stack(patches);
}

/// Expects row `row` of a view to hold the patches of `pixels`, and zeros after them.
void expect_row(const TowerInput& view, std::int64_t row, const at::Tensor& pixels) {
  const at::Tensor patches = patches_of(pixels);
  const std::int64_t count = patches.size(0);
  EXPECT_TRUE(at::equal(view.grids[row], at::tensor({pixels.size(1) / kPatch, pixels.size(2) / kPatch}, at::kLong)));
  ASSERT_LE(count, view.patches.size(1));
  EXPECT_TRUE(at::equal(view.patches[row].narrow(0, 0, count), patches)) << row;
  EXPECT_TRUE(view.patches[row].slice(0, count).eq(0).all().item<bool>());
  EXPECT_TRUE(at::equal(view.mask[row], at::arange(view.mask.size(1)) < count));
}

// The expected grids come from the formula in Hugging Face's library transformers.
TEST(PatchGrid, EqualsTheGridOfTransformers) {
  struct GridCase {
    std::int64_t height, width, patch, max_patches;
    config::Size grid;
  };
  for (const GridCase& c : std::vector<GridCase>{{224, 224, 16, 256, {16, 16}},   {480, 640, 16, 256, {14, 18}},
                                                 {640, 480, 16, 256, {18, 14}},   {1, 1, 16, 256, {7, 7}},
                                                 {50, 1000, 16, 256, {4, 64}},    {3, 4000, 16, 64, {1, 64}},
                                                 {427, 640, 14, 729, {22, 33}},   {1080, 1920, 16, 1024, {24, 42}},
                                                 {2, 3, 32, 5, {2, 2}},           {333, 500, 16, 1, {1, 1}},
                                                 {100, 300, 16, 2, {1, 2}},       {512, 512, 16, 128, {11, 11}}})
    EXPECT_EQ(patch_grid(c.height, c.width, c.patch, c.max_patches), c.grid) << c.height << " x " << c.width;
}

// At the largest scale within the limit, the height or the width is a whole number of patches. The test tries all scales with this
// property, in integer arithmetic.
TEST(PatchGrid, HasTheMostPatchesOfAllScales) {
  Random random(3, Purpose::shapes);
  for (int i = 0; i < 300; ++i) {
    const std::int64_t height = 20 + random.below(2000), width = 20 + random.below(2000), patches = 16 + random.below(300);
    config::Size best(1, 1);
    for (std::int64_t side = 1; side <= patches; ++side)
      for (const config::Size grid : {config::Size(side, (side * width + height - 1) / height),
                                      config::Size((side * height + width - 1) / width, side)})
        if (grid.height * grid.width <= patches && grid.height * grid.width >= best.height * best.width) best = grid;
    EXPECT_EQ(patch_grid(height, width, 16, patches), best) << height << " x " << width << ", " << patches;
  }
}

TEST(PatchGrid, SupportsPatchesThatAreNotSquare) {
  EXPECT_EQ(patch_grid(100, 100, {20, 10}, 50), config::Size(5, 10));
  EXPECT_THROW(patch_grid(0, 100, 16, 256), c10::Error);
}

TEST(PatchGrid, TheFullestGridIsTheOneNearestToASquare) {
  EXPECT_EQ(fullest_grid(256), config::Size(16, 16));
  EXPECT_EQ(fullest_grid(128), config::Size(8, 16));
  EXPECT_EQ(fullest_grid(7), config::Size(1, 7));
}

TEST(OwnShapes, EvaluationResizesTheWholeImageAndItsMask) {
  const Image image = test::noise(40, 22, 1);
  const Image seen = preprocess(image, naflex(20));
  EXPECT_EQ(config::Size(seen.height, seen.width), config::Size(6 * kPatch, 3 * kPatch));
  EXPECT_EQ(seen.pixels, resize(image, seen.height, seen.width, "bicubic").pixels);
  std::vector<std::uint8_t> mask(40 * 22, 3);
  std::fill(mask.begin(), mask.begin() + 20 * 22, 1);  // the upper half
  const std::vector<std::uint8_t> small = preprocess_mask(mask, 40, 22, naflex(20));
  ASSERT_EQ(small.size(), seen.pixels.size() / 3);
  EXPECT_EQ(std::count(small.begin(), small.end(), 1), std::ssize(small) / 2);
  EXPECT_EQ(small.front(), 1);
  EXPECT_EQ(small.back(), 3);
}

TEST(OwnShapes, BatchesHoldThePatchesOfWholeImages) {
  const auto source = mixed_shapes(10);
  LoaderSettings settings = loader_settings("{batch_size: 5, shuffle: false, augmentation: {crop: evaluation}}");
  Loader loader(source, nullptr, naflex(16), settings, Needs{.texts = {}}, 1);
  const TowerInput view = loader.next().images.at("image");
  EXPECT_FALSE(view.pixels.defined());
  std::int64_t most = 0;
  for (std::int64_t i = 0; i < 5; ++i) {
    const at::Tensor pixels = to_tensor(preprocess(decode_image(source->get(i).encoded), naflex(16)));
    expect_row(view, i, pixels);
    most = std::max(most, pixels.numel() / (3 * kPatch * kPatch));
  }
  EXPECT_EQ(view.patches.size(1), most) << "as many columns as the longest image needs";
  EXPECT_LE(most, 16);
}

TEST(OwnShapes, RandomCropsHaveDifferentShapesWithAnyNumberOfThreads) {
  LoaderSettings settings = loader_settings("{batch_size: 10, threads: 1, augmentation: {scale: [0.3, 1], ratio: [0.4, 2.5], flip: 0.5}}");
  Loader one(mixed_shapes(10), nullptr, naflex(16), settings, Needs{.texts = {}}, 1);
  settings.threads = 4;
  Loader four(mixed_shapes(10), nullptr, naflex(16), settings, Needs{.texts = {}}, 1);
  std::set<std::pair<std::int64_t, std::int64_t>> grids;
  for (int i = 0; i < 3; ++i) {
    const TowerInput a = one.next().images.at("image"), b = four.next().images.at("image");
    EXPECT_TRUE(at::equal(a.patches, b.patches) && at::equal(a.mask, b.mask) && at::equal(a.grids, b.grids));
    EXPECT_LE(a.patches.size(1), 16);
    for (std::int64_t row = 0; row < 10; ++row) grids.emplace(a.grids[row][0].item<std::int64_t>(), a.grids[row][1].item<std::int64_t>());
  }
  EXPECT_GT(grids.size(), 4U);
}

TEST(OwnShapes, FlipsSwapLeftAndRight) {
  const auto view_of = [](const std::string& augmentation) {
    Loader loader(mixed_shapes(4), nullptr, naflex(16), loader_settings("{batch_size: 4, shuffle: false, augmentation: " + augmentation + "}"),
                  Needs{.texts = {}}, 1);
    return loader.next().images.at("image");
  };
  const TowerInput plain = view_of("{crop: evaluation}"), flipped = view_of("{crop: evaluation, flip: 1}");
  const std::int64_t rows = plain.grids[0][0].item<std::int64_t>(), columns = plain.grids[0][1].item<std::int64_t>();
  const auto image = [&](const TowerInput& view) {  // the patches as pixels, [rows, columns, 3, h, w]
    return view.patches[0].narrow(0, 0, rows * columns).view({rows, columns, 3, kPatch, kPatch});
  };
  EXPECT_TRUE(at::equal(image(flipped), image(plain).flip({1, 4})));
}

TEST(OwnShapes, ASampleWithoutAnImageHasOnlyMaskedPatches) {
  const Needs needs{.images = {{"image", {.optional = true}}}};
  Loader loader(mixed_shapes(4, {1}), std::make_shared<ByteTokenizer>(), naflex(16),
                loader_settings("{batch_size: 4, shuffle: false, max_bad_share: 1}"), needs, 1);
  const TowerInput view = loader.next().images.at("image");
  EXPECT_EQ(view.mask.sizes(), view.patches.sizes().slice(0, 2));
  EXPECT_TRUE(at::equal(view.mask.any(1), at::tensor({1, 0, 1, 1}, at::kLong).to(at::kBool)));
  EXPECT_TRUE(view.grids[1].eq(0).all().item<bool>());
  EXPECT_TRUE(view.patches[1].eq(0).all().item<bool>());
}

TEST(OwnShapes, BoxesBelongToThePatches) {
  std::vector<Sample> samples = make_samples(2);
  for (Sample& sample : samples) sample.objects = {{.box = {0, 12, 10, 12}, .phrase = "an object"}};
  const Needs needs{.images = {{"image", {.boxes = true}}}, .texts = {{"phrases", {}}}};
  Loader loader(std::make_shared<MemorySource>(samples), std::make_shared<ByteTokenizer>(), naflex(16),
                loader_settings("{batch_size: 2, shuffle: false, augmentation: {crop: evaluation}, boxes: {count: 1}}"), needs, 1);
  const TowerInput view = loader.next().images.at("image");
  EXPECT_TRUE(view.patches.defined());
  ASSERT_EQ(view.boxes.corners.sizes(), (at::IntArrayRef{2, 1, 4}));
  EXPECT_TRUE(view.boxes.mask.all().item<bool>());
  EXPECT_TRUE(at::equal(view.boxes.corners[0][0], at::tensor({0.5F, 0.0F, 1.0F, 0.5F}))) << "the first image is 20 x 24";
}

TEST(OwnShapes, AViewWithItsOwnSizeHasAsManyPatchesAsFitIntoIt) {
  const Needs needs{.images = {{"image", {}}, {"local", {}}}, .texts = {}};
  const LoaderSettings settings = loader_settings("{batch_size: 5, views: {local: {image_size: [8, 12], scale: [0.2, 0.5]}}}");
  Loader loader(mixed_shapes(5), nullptr, naflex(16), settings, needs, 1);
  const Batch batch = loader.next();
  EXPECT_LE(batch.images.at("local").patches.size(1), 6);
  EXPECT_GT(batch.images.at("image").patches.size(1), 6);
  EXPECT_EQ(image_view_sizes(naflex(8), settings, needs).at("image"), config::Size(2 * kPatch, 4 * kPatch));
  EXPECT_EQ(error_of([&] {
              Loader(mixed_shapes(5), nullptr, naflex(16), loader_settings("{batch_size: 5, views: {local: {image_size: 10}}}"), needs, 1);
            }),
            "data.loader.views: the image view local is 10 x 10 pixels, but for images that keep their shapes "
            "(model.preprocessing.resize_mode: naflex) whole patches must fill its image_size: make its sides multiples of 4 and 4");
}

TEST(OwnShapes, EvaluationBatchesAlwaysHaveTheMaximumNumberOfColumns) {
  std::vector<at::Tensor> images;
  for (const config::Size size : {config::Size(8, 20), config::Size(12, 4)})
    images.push_back(to_tensor(test::noise(size.height, size.width, 5)));
  const TowerInput batch = image_batch(images, naflex(12));
  EXPECT_EQ(batch.patches.sizes(), (at::IntArrayRef{2, 12, 3 * kPatch * kPatch}));
  expect_row(batch, 0, images[0]);
  expect_row(batch, 1, images[1]);
  EXPECT_THROW(image_batch(images, naflex(9)), c10::Error) << "the first image has 10 patches";
  Preprocessing squares;
  EXPECT_EQ(image_batch({images[0], images[0]}, squares).pixels.sizes(), (at::IntArrayRef{2, 3, 8, 20}));
}

LoaderSettings in_steps() {
  return loader_settings(
      "{batch_size: 2, shuffle: false, augmentation: {crop: evaluation}, resolution: [{until: 0.25, max_patches: 4}, {until: 0.5, "
      "max_patches: 9}]}");
}

TEST(ResolutionSteps, DependOnThePositionInTheRunAndSurviveAResume) {
  LoaderTarget target;
  target.batches_of_run = 8;  // two epochs
  const auto loader = [&](std::int64_t threads) {
    LoaderSettings settings = in_steps();
    settings.threads = threads;
    return Loader(mixed_shapes(8), nullptr, naflex(16), settings, Needs{.texts = {}}, 1, {}, target);
  };
  Loader whole = loader(2);
  for (int step = 0; step < 8; ++step) {
    const std::int64_t limit = step < 2 ? 4 : step < 4 ? 9 : 16;
    const auto most = whole.next().images.at("image").grids.prod(1).max().item<std::int64_t>();
    EXPECT_LE(most, limit) << step;
    EXPECT_GT(most, limit / 2) << step;
  }
  expect_resumes(loader, 8, 1, 1);
}

TEST(ResolutionSteps, AreIgnoredIfTheLengthOfTheRunIsUnknown) {
  Loader loader(mixed_shapes(8), nullptr, naflex(16), in_steps(), Needs{.texts = {}}, 1);
  EXPECT_GT(loader.next().images.at("image").patches.size(1), 9);
}

TEST(ResolutionSteps, MustAscendAndNeedNaflex) {
  const auto error = [](const Preprocessing& preprocessing, const std::string& steps) {
    return error_of([&] {
      Loader(mixed_shapes(8), nullptr, preprocessing, loader_settings("{batch_size: 2, resolution: " + steps + "}"), Needs{.texts = {}}, 1);
    });
  };
  EXPECT_EQ(error(naflex(16), "[{until: 0.5}, {until: 0.5}]"),
            "data.loader.resolution[1].until is 0.5, not above 0.5 of the step before it: the shares must increase");
  EXPECT_NE(error({}, "[{until: 0.5}]").find("set model.preprocessing.resize_mode to naflex"), std::string::npos);
}

TEST(ShapesOfManyAspects, KeepTheShorterSideAndHaveCorrectBoxes) {
  ShapesSettings settings{.size = 40, .aspect = 2};
  const ShapesSource source(settings);
  settings.aspect = 1;
  const ShapesSource squares(settings);
  std::set<std::int64_t> wide, high;
  for (std::int64_t i = 0; i < 40; ++i) {
    const Sample sample = source.get(i), square = squares.get(i);
    EXPECT_EQ(std::min(sample.image.height, sample.image.width), 64);
    EXPECT_LE(std::max(sample.image.height, sample.image.width), 128);
    (sample.image.width > sample.image.height ? wide : high).insert(sample.image.width + sample.image.height);
    EXPECT_EQ(sample.captions, square.captions) << "the scene must be the same";
    ASSERT_EQ(sample.mask.size(), sample.image.pixels.size() / 3);
    for (std::size_t k = 0; k < sample.objects.size(); ++k) {
      const auto &box = sample.objects[k].box, &of_square = square.objects[k].box;
      EXPECT_NEAR(static_cast<double>(box[2]), static_cast<double>(of_square[2]), 2) << "objects must keep their shapes up to rounding";
      EXPECT_NEAR(static_cast<double>(box[3]), static_cast<double>(of_square[3]), 2);
      EXPECT_LE(box[0] + box[2], sample.image.height);
      EXPECT_LE(box[1] + box[3], sample.image.width);
    }
  }
  EXPECT_GT(wide.size(), 5U);
  EXPECT_GT(high.size(), 5U);
}

}  // namespace
}  // namespace tessera
