// Tests images that keep their own shapes, given as sequences of patches (NaFlex).
#include <limits>

#include <torch/csrc/autograd/autograd.h>

#include "src/models/vit.h"
#include "tests/models/small_models.h"
#include "tests/support/gradcheck.h"
#include "tests/support/test_name.h"
#include <tessera/models/registry.h>

namespace tessera {
namespace {

constexpr std::int64_t kPatch = 8;

/// The images' grids: rows and columns of patches. The first grid is that of the position table, and the third image is missing.
const std::vector<config::Size> kGrids = {{2, 2}, {1, 5}, {0, 0}, {3, 2}, {5, 1}, {1, 5}};

at::Tensor random_image(config::Size grid) {
  return at::randn({3, grid.height * kPatch, grid.width * kPatch}, at::kDouble);
}

/// Extracts patches [rows * columns, 3 * h * w] with plain loops.
at::Tensor patches_of(const at::Tensor& image) {
  std::vector<at::Tensor> patches;
  for (std::int64_t y = 0; y < image.size(1); y += kPatch)
    for (std::int64_t x = 0; x < image.size(2); x += kPatch)
      patches.push_back(image.narrow(1, y, kPatch).narrow(2, x, kPatch).flatten());
  return at::stack(patches);
}

/// Packs the images into one view with `columns` patches per image. Unused patches are filled with `padding`.
TowerInput sequences(const std::vector<at::Tensor>& images, std::int64_t columns, double padding) {
  const std::int64_t count = std::ssize(images);
  TowerInput out;
  out.grids = at::zeros({count, 2}, at::kLong);
  out.patches = at::full({count, columns, 3 * kPatch * kPatch}, padding, at::kDouble);
  for (std::int64_t i = 0; i < count; ++i) {
    const at::Tensor& image = images[static_cast<std::size_t>(i)];
    if (!image.defined()) continue;
    out.grids[i][0] = image.size(1) / kPatch;
    out.grids[i][1] = image.size(2) / kPatch;
    const at::Tensor patches = patches_of(image);
    out.patches[i].narrow(0, 0, patches.size(0)).copy_(patches);
  }
  out.mask = at::arange(columns).unsqueeze(0) < out.grids.prod(1, true);
  return out;
}

std::vector<at::Tensor> random_images() {
  std::vector<at::Tensor> images;
  for (const config::Size grid : kGrids) images.push_back(grid.height > 0 ? random_image(grid) : at::Tensor());
  return images;
}

struct OwnShapesCase {
  const char* name;
  const char* encoder;
  const char* readout;
};

ModelSettings of_case(const OwnShapesCase& given) {
  ModelSettings s = small_clip();
  const std::string encoder = given.encoder, layers = encoder.find("layers") == std::string::npos ? "layers: 2, " : "";
  s.image = {{"vit", settings("{patch_size: 8, width: 12, heads: 3, " + layers + encoder + "}")},
             {given.readout},
             {"linear", settings("{embed_dim: 6}")}};
  s.preprocessing.image_size = 16;
  s.preprocessing.resize_mode = "naflex";
  s.preprocessing.max_patches = 6;
  return s;
}

std::shared_ptr<DualEncoder> model_of(const ModelSettings& settings) {
  at::manual_seed(0);
  auto model = std::make_shared<DualEncoder>(settings);
  model->to(at::kDouble);
  return model;
}

class OwnShapes : public ::testing::TestWithParam<OwnShapesCase> {};

INSTANTIATE_TEST_SUITE_P(
    Settings, OwnShapes,
    ::testing::Values(OwnShapesCase{"ClassToken", "class_token: true", "cls"},
                      OwnShapesCase{"Registers", "registers: 3, prefix_positions: all", "cls"},
                      OwnShapesCase{"BareRegisters", "registers: 2", "gap"},
                      OwnShapesCase{"NoClassToken", "class_token: false, pre_norm: false, patch_bias: true", "map"},
                      OwnShapesCase{"Rotary", "position_embedding: none, rotary: {}", "gap"},
                      OwnShapesCase{"RotaryOfOneReference",
                                    "rotary: {reference: 4, pairs: halves}, registers: 1, final_norm: pooled", "gap"},
                      OwnShapesCase{"CenteredRotary", "class_token: false, rotary: {coordinates: centered}", "max"},
                      OwnShapesCase{"PlainBicubic", "position_resampling: bicubic, grad_checkpointing: true", "cls"}),
    [](const auto& test) { return std::string(test.param.name); });

const ViewNeeds kAll = {.tokens = true, .dense = true, .encoder_tokens = true, .optional = true};

TEST_P(OwnShapes, AreEncodedLikeSingleImages) {
  const auto model = model_of(of_case(GetParam()));
  const std::vector<at::Tensor> images = random_images();
  const TowerFeatures found = model->encode_image(sequences(images, 7, std::numeric_limits<double>::quiet_NaN()), kAll);
  ASSERT_EQ(found.tokens.size(1), 7);
  EXPECT_TRUE(found.global.isfinite().all().item<bool>());
  for (std::size_t i = 0; i < images.size(); ++i) {
    const auto row = static_cast<std::int64_t>(i);
    const std::int64_t patches = kGrids[i].height * kGrids[i].width;
    for (const at::Tensor* tokens : {&found.tokens, &found.dense, &found.encoder_tokens})
      EXPECT_TRUE(tokens->select(0, row).slice(0, patches).eq(0).all().item<bool>()) << "padding is 0";
    EXPECT_EQ(found.present[row].item<bool>(), patches > 0);
    EXPECT_EQ(found.mask[row].sum().item<std::int64_t>(), patches);
    if (patches == 0) continue;
    const TowerFeatures alone = model->encode_image(images[i].unsqueeze(0), {.tokens = true, .dense = true, .encoder_tokens = true});
    expect_close(found.global[row], alone.global[0], 1e-9);
    expect_close(found.tokens[row].slice(0, 0, patches), alone.tokens[0], 1e-9);
    expect_close(found.dense[row].slice(0, 0, patches), alone.dense[0], 1e-9);
    expect_close(found.encoder_tokens[row].slice(0, 0, patches), alone.encoder_tokens[0], 1e-9);
  }
}

TEST_P(OwnShapes, HaveTheGradientsOfSingleImages) {
  const auto model = model_of(of_case(GetParam()));
  const std::vector<at::Tensor> images = random_images();
  const auto gradients = [&](const at::Tensor& loss) {
    return torch::autograd::grad({loss}, model->image_tower().parameters(), {}, std::nullopt, false, /*allow_unused=*/true);
  };
  const at::Tensor weights = at::randn({std::ssize(images), 6}, at::kDouble);
  const TowerFeatures found = model->encode_image(sequences(images, 6, std::numeric_limits<double>::quiet_NaN()), kAll);
  const at::Tensor there = found.present.unsqueeze(1);
  const auto together = gradients((found.global * weights * there).sum() + found.tokens.square().sum());
  at::Tensor loss = at::zeros({}, at::kDouble);
  for (std::size_t i = 0; i < images.size(); ++i) {
    if (!images[i].defined()) continue;
    const TowerFeatures alone = model->encode_image(images[i].unsqueeze(0), {.tokens = true});
    loss = loss + (alone.global[0] * weights[static_cast<std::int64_t>(i)]).sum() + alone.tokens.square().sum();
  }
  const auto apart = gradients(loss);
  ASSERT_EQ(together.size(), apart.size());
  for (std::size_t i = 0; i < apart.size(); ++i) {
    ASSERT_EQ(together[i].defined(), apart[i].defined()) << i;
    if (apart[i].defined()) expect_close(together[i], apart[i], 1e-9 * (1 + apart[i].abs().max().item<double>()));
  }
}

TEST(OwnShapesOfOneLength, NeedNoPaddingAndKeepTheirGrids) {
  const auto model = model_of(of_case({"", "registers: 1, rotary: {}", "gap"}));
  const std::vector<at::Tensor> images = {random_image({2, 3}), random_image({3, 2}), random_image({1, 6})};
  const TowerFeatures found = model->encode_image(sequences(images, 6, 0));
  EXPECT_EQ(found.grids[2][1].item<std::int64_t>(), 6);
  for (std::size_t i = 0; i < images.size(); ++i)
    expect_close(found.global[static_cast<std::int64_t>(i)], model->encode_image(images[i].unsqueeze(0)).global[0], 1e-9);
}

TEST(OwnShapesOfBytes, AreNormalizedLikePixels) {
  ModelSettings settings = of_case({"", "class_token: true", "cls"});
  settings.preprocessing.mean = {0.1, 0.5, 0.9};
  settings.preprocessing.std = {0.3, 0.2, 0.1};
  at::manual_seed(1);
  DualEncoder model(settings);
  const at::Tensor image = at::randint(256, {3, 8, 24}, at::kByte);
  TowerInput input = sequences({image.to(at::kDouble)}, 4, 0);
  input.patches = input.patches.to(at::kByte);
  expect_close(model.encode_image(input).global, model.encode_image(image.unsqueeze(0)).global, 1e-5);
}

TEST(OwnShapesInTraining, SkipBlocksImageByImage) {
  const auto model = model_of(of_case({"", "drop_path: 0.5", "gap"}));
  model->train();
  const std::vector<at::Tensor> images = random_images();
  Batch batch;
  batch.keys.assign(images.size(), "");
  batch.images["image"] = sequences(images, 6, 0);
  const Needs needs{.texts = {}};
  at::manual_seed(5);
  const at::Tensor whole = model->forward(batch, needs).image().global;
  at::manual_seed(5);
  batch.images["image"] = sequences(images, 9, 0);
  expect_close(model->forward(batch, needs).image().global, whole, 1e-9);
}

TEST(OwnShapesOfAModel, GradientsOfPatchesMatchFiniteDifferences) {
  const auto model = model_of(of_case({"", "registers: 1, layers: 1", "map"}));
  TowerInput input = sequences({random_image({1, 2}), random_image({2, 1}), at::Tensor(), random_image({1, 1})}, 2, 0);
  input.patches = input.patches.contiguous().requires_grad_(true);
  const at::Tensor weights = at::randn({4, 6}, at::kDouble);
  expect_gradients_match({input.patches}, [&] { return (model->encode_image(input).global * weights).sum(); }, 1e-5);
}

TEST(OwnShapesOfAModel, RejectsUnsupportedSettings) {
  const auto refused = [](const std::string& encoder) {
    return error_of([&] { model_of(of_case({"", encoder.c_str(), "gap"})); });
  };
  EXPECT_EQ(refused("patch_dropout: 0.5"),
            "model.image.encoder.patch_dropout does not support images of varying shapes (model.preprocessing.resize_mode: "
            "naflex): set it to 0");
  EXPECT_NE(refused("leff: {layers: 1}").find("encoder.leff does not support"), std::string::npos);
  EXPECT_NE(refused("rotary: {shift: 0.1}").find("encoder.rotary does not support"), std::string::npos);
  ModelSettings stem = of_case({"", "stem: mobileclip", "gap"});
  stem.image.encoder.settings = settings("{patch_size: 16, image_size: 16, width: 12, layers: 1, heads: 3, stem: mobileclip}");
  EXPECT_NE(error_of([&] { DualEncoder model(stem); }).find("encoder.stem does not support"), std::string::npos);
  ModelSettings resnet = of_case({"", "layers: 1", "gap"});
  resnet.image.encoder = {"modified_resnet", settings("{image_size: 32}")};
  resnet.preprocessing.image_size = 32;
  EXPECT_EQ(error_of([&] { DualEncoder model(resnet); }),
            "model.preprocessing.resize_mode: naflex gives patches of images, which the image encoder modified_resnet does not "
            "take: set model.image.encoder.name to vit, or another resize_mode");
  ModelSettings other = of_case({"", "layers: 1", "gap"});
  other.preprocessing.patch_size = config::Size(4);
  EXPECT_NE(error_of([&] { DualEncoder model(other); }).find("leave out the former"), std::string::npos);

  const auto model = model_of(of_case({"", "mask_token: true", "gap"}));
  const TowerInput input = sequences(random_images(), 6, 0);
  EXPECT_NE(error_of([&] { model->encode_image(input, {.hidden = {.share = 0.5}}); }).find("hides patches"), std::string::npos);
  model->eval();
  EXPECT_NE(error_of([&] { model->encode_image(input, {.dense = true, .last_block = LastBlock::sclip}); }).find("leave it plain"),
            std::string::npos);
}

TEST(OwnShapesOfAModel, RejectsAMaskThatContradictsTheGrids) {
  const auto model = model_of(of_case({"", "layers: 1", "gap"}));
  TowerInput input = sequences(random_images(), 6, 0);
  input.mask = input.mask.clone();
  input.mask[1][0].fill_(false);
  EXPECT_THROW(model->encode_image(input), c10::Error);
}

TEST(OwnShapesOfAModel, PreprocessingTakesThePatchSizeOfTheEncoder) {
  const ModelSettings resolved = resolve(of_case({"", "layers: 1", "gap"}));
  ASSERT_TRUE(resolved.preprocessing.patch_size.has_value());
  EXPECT_EQ(*resolved.preprocessing.patch_size, config::Size(kPatch));
  EXPECT_FALSE(resolve(small_clip()).preprocessing.patch_size.has_value());
}

}  // namespace
}  // namespace tessera
