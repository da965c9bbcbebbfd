#include <cmath>

#include "src/models/last_block.h"
#include "tests/models/small_models.h"

namespace tessera {
namespace {

constexpr LastBlock kChanged[] = {LastBlock::maskclip, LastBlock::sclip, LastBlock::clearclip, LastBlock::naclip};

TowerFeatures patches_by(DualEncoder& model, const at::Tensor& pixels, LastBlock kind) {
  const at::NoGradGuard guard;
  return model.encode_image(pixels, {.dense = true, .last_block = kind});
}

DualEncoder small_model(const char* vit, const char* projection = "linear") {
  ModelSettings s = small_clip();
  s.image = {{"vit", settings(vit)}, {"gap"}, {projection, settings("{embed_dim: 6}")}};
  at::manual_seed(3);
  DualEncoder model(s);
  model.eval();
  return model;
}

TEST(LastBlock, ChangesOnlyPatchesAndEachKindDiffers) {
  DualEncoder model(small_clip());
  model.eval();
  const at::Tensor pixels = random_pixels(2, 32);
  const TowerFeatures plain = model.encode_image(pixels, {.dense = true});
  EXPECT_TRUE(at::equal(patches_by(model, pixels, LastBlock::plain).dense, plain.dense));
  std::vector<at::Tensor> seen = {plain.dense};
  for (const LastBlock kind : kChanged) {
    const TowerFeatures changed = patches_by(model, pixels, kind);
    EXPECT_TRUE(at::equal(changed.global, plain.global)) << "the class token comes from the plain block";
    for (const at::Tensor& other : seen) EXPECT_FALSE(at::allclose(changed.dense, other, 1e-3, 1e-5));
    seen.push_back(changed.dense);
  }
}

TEST(LastBlock, MaskclipAttendsToNoOtherPatch) {
  DualEncoder model = small_model("{patch_size: 8, width: 12, layers: 1, heads: 3}");
  at::Tensor pixels = random_pixels(1);
  const at::Tensor before = patches_by(model, pixels, LastBlock::maskclip).dense;
  pixels.narrow(2, 8, 8).narrow(3, 8, 8).fill_(0);  // changes the last of four patches
  const at::Tensor after = patches_by(model, pixels, LastBlock::maskclip).dense;
  EXPECT_TRUE(at::equal(after.slice(1, 0, 3), before.slice(1, 0, 3)));
  EXPECT_FALSE(at::allclose(after.slice(1, 3), before.slice(1, 3)));
}

TEST(LastBlock, ClearclipWithEqualQueriesAveragesTheValues) {
  const at::Tensor query = at::ones({1, 4, 6}), value = at::randn({1, 4, 6});
  const at::Tensor out = attend_as(LastBlock::clearclip, query, at::randn({1, 4, 6}), value, 2, {});
  expect_close(out, value.mean(1, true).expand_as(out));
  expect_close(attend_as(LastBlock::sclip, query, query, value, 2, {}), 2 * out);
}

TEST(LastBlock, NaclipPrefersNeighborsIfKeysAreEqual) {
  const at::Tensor window = neighbor_window({2, 3}, true);
  ASSERT_EQ(window.sizes(), (std::vector<std::int64_t>{7, 7}));
  EXPECT_EQ(window[0].abs().sum().item<float>(), 0);
  EXPECT_EQ(window.select(1, 0).abs().sum().item<float>(), 0);
  EXPECT_EQ(window[1][1].item<float>(), 1);
  EXPECT_NEAR(window[1][3].item<double>(), std::exp(-4.0 / 50), 1e-6) << "two columns apart";
  EXPECT_NEAR(window[1][6].item<double>(), std::exp(-5.0 / 50), 1e-6) << "one row and two columns apart";
  const at::Tensor key = at::zeros({1, 6, 4}), value = at::eye(6).unsqueeze(0).narrow(2, 0, 4);
  const at::Tensor out = attend_as(LastBlock::naclip, key, key, value, 1, {.grid = {2, 3}});
  expect_close(out[0][0], neighbor_window({2, 3}, false)[0].softmax(0).narrow(0, 0, 4));
  EXPECT_THROW(attend_as(LastBlock::naclip, key, key, value, 1, {}), c10::Error) << "no grid";
}

TEST(LastBlock, SupportsEncodersWithoutClassTokenOrNormAndWithLayerScale) {
  for (const char* vit : {"{patch_size: 8, width: 12, layers: 2, heads: 3, class_token: false, final_norm: none}",
                          "{patch_size: 8, width: 12, layers: 2, heads: 3, final_norm: pooled, layer_scale_init: 0.5}",
                          "{patch_size: 8, width: 12, layers: 2, heads: 3, leff: {layers: 2}}"}) {
    DualEncoder model = small_model(vit, "adaptor");
    const at::Tensor pixels = random_pixels(2, 24);
    for (const LastBlock kind : kChanged) {
      const at::Tensor dense = patches_by(model, pixels, kind).dense;
      EXPECT_EQ(dense.sizes(), (std::vector<std::int64_t>{2, 9, 6})) << vit;
      EXPECT_TRUE(at::isfinite(dense).all().item<bool>()) << vit;
    }
  }
}

TEST(LastBlock, IsRejectedIfThereIsNoSuchBlock) {
  const char* const resnet = "{layers: [1, 1, 1, 1], width: 4}";
  ModelSettings s = small_clip();
  s.preprocessing.image_size = 32;
  s.image = {{"modified_resnet", settings(resnet)}, {"gap"}, {"linear", settings("{embed_dim: 6}")}};
  DualEncoder other(s);
  other.eval();
  EXPECT_EQ(
      error_of([&] { patches_by(other, random_pixels(1, 32), LastBlock::sclip); }),
      "last_block changes the last block of a vit, but this model's image encoder is not a vit: leave it plain");
  DualEncoder flat = small_model("{patch_size: 8, width: 12, layers: 0, heads: 3}");
  EXPECT_EQ(error_of([&] { patches_by(flat, random_pixels(1), LastBlock::sclip); }),
            "last_block changes the last block of a vit, but this model's vit has no blocks");
  DualEncoder training(small_clip());
  EXPECT_THROW(patches_by(training, random_pixels(1), LastBlock::sclip), c10::Error) << "training mode";
}

}  // namespace
}  // namespace tessera
