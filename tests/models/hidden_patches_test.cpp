#include <map>

#include "src/models/hidden_patches.h"
#include "src/models/per_sample_rng.h"
#include "tests/models/small_models.h"

namespace tessera {
namespace {

ModelSettings with_mask_token(const std::string& more = "") {
  ModelSettings s = small_clip();
  s.image.encoder.settings = settings("{patch_size: 4, width: 12, layers: 2, heads: 3, mask_token: true" + more + "}");
  return s;
}

ViewNeeds hiding(double share, bool blocks = false) {
  return {.encoder_tokens = true,
          .hidden = {.share = share, .blocks = blocks},
          .extras = {{"hidden", {[](const TowerInput& input, const Encoded&) { return input.hidden; }}}}};
}

at::Tensor neighbors_alike(const at::Tensor& hidden, std::int64_t side) {
  const at::Tensor grid = hidden.view({-1, side, side});
  return (grid.slice(2, 1) == grid.slice(2, 0, side - 1)).to(at::kFloat).mean();
}

TEST(HiddenPatches, AreTheGivenShareOfEachImage) {
  at::manual_seed(1);
  for (const bool blocks : {false, true})
    for (const auto& [share, count] : std::map<double, std::int64_t>{{0.5, 98}, {0.3, 58}, {0.001, 1}, {0.99, 194}}) {
      const at::Tensor hidden = draw_hidden_patches({share, blocks}, 8, 14, at::kCPU);
      EXPECT_TRUE((hidden.sum(1) == count).all().item<bool>()) << share << blocks << hidden.sum(1);
      EXPECT_FALSE(at::equal(hidden[0], hidden[1])) << "each image draws its own patches";
    }
  EXPECT_TRUE(draw_hidden_patches({0.5, true}, 2, 1, at::kCPU).all().item<bool>()) << "a single patch is hidden";
}

TEST(HiddenPatches, BlocksAreContiguous) {
  at::manual_seed(1);
  const float apart = neighbors_alike(draw_hidden_patches({0.4, false}, 50, 14, at::kCPU), 14).item<float>();
  const float together = neighbors_alike(draw_hidden_patches({0.4, true}, 50, 14, at::kCPU), 14).item<float>();
  EXPECT_NEAR(apart, 0.52, 0.02);  // share of equal neighbors among independent patches: 0.4 * 0.4 + 0.6 * 0.6
  EXPECT_GT(together, 0.8);
}

TEST(HiddenPatches, DependOnlyOnTheKeysOfTheRows) {
  for (const bool blocks : {false, true}) {
    const auto drawn = [&](std::int64_t first, std::int64_t count) {
      const RowRngScope scope(row_keys(5, first, 1, count));
      return draw_hidden_patches({0.5, blocks}, count, {3, 5}, at::kCPU);
    };
    EXPECT_TRUE(at::equal(drawn(0, 6).slice(0, 4), drawn(4, 2)));
  }
}

TEST(HiddenPatches, DoNotAffectTheOutput) {
  DualEncoder model(with_mask_token());
  const at::NoGradGuard no_grad;
  model.state_dict().at("visual.mask_token").normal_();
  const at::Tensor pixels = random_pixels(3);
  const RowRngScope scope(row_keys(1, 0, 1, 3));
  const TowerFeatures first = model.encode_image(pixels, hiding(0.5));
  const at::Tensor seen = first.extras.at("hidden").view({3, 1, 4, 4}).repeat_interleave(4, 2).repeat_interleave(4, 3).logical_not();
  TowerInput other = image_input(at::where(seen, pixels, random_pixels(3)));
  const RowRngScope again(row_keys(1, 0, 1, 3));
  const TowerFeatures second = model.encode_image(other, hiding(0.5));
  EXPECT_TRUE(at::equal(first.extras.at("hidden"), second.extras.at("hidden")));
  EXPECT_TRUE(at::equal(first.encoder_tokens, second.encoder_tokens) && at::equal(first.global, second.global));
  EXPECT_FALSE(at::allclose(first.global, model.encode_image(pixels).global)) << "differs from the output with all patches";
}

TEST(HiddenPatches, MaskTokenGetsAGradientOnlyIfPatchesAreHidden) {
  DualEncoder model(with_mask_token());
  const at::Tensor token = model.state_dict().at("visual.mask_token");
  model.encode_image(random_pixels(2)).global.sum().backward();
  EXPECT_FALSE(token.grad().defined());
  model.encode_image(random_pixels(2), hiding(0.5)).global.sum().backward();
  EXPECT_GT(token.grad().abs().sum().item<float>(), 0);
}

TEST(HiddenPatches, RejectAnEncoderWithoutAMaskToken) {
  DualEncoder plain(small_clip()), dropping(with_mask_token(", patch_dropout: 0.5"));
  EXPECT_NE(error_of([&] { plain.encode_image(random_pixels(1), hiding(0.5)); }).find("mask_token to true"), std::string::npos);
  EXPECT_NE(error_of([&] { dropping.encode_image(random_pixels(1), hiding(0.5)); }).find("patch_dropout"), std::string::npos);
}

TEST(HiddenPatches, ModelWithoutAMaskTokenLoadsIntoOneWithIt) {
  ModelSettings without = small_clip();
  without.image.encoder.settings = settings("{patch_size: 4, width: 12, layers: 2, heads: 3}");
  DualEncoder from(without), to(with_mask_token());
  to.load_state(from.state_dict(), "file");
  const at::Tensor pixels = random_pixels(2);
  EXPECT_TRUE(at::equal(from.encode_image(pixels).global, to.encode_image(pixels).global));
  from.load_state(to.state_dict(), "file");
}

TEST(Views, OnlyForTheTeacherAreNotEncodedByTheStudent) {
  DualEncoder model(small_clip());
  Batch batch;
  for (const char* view : {"global_0", "local_0"}) batch.images[view] = image_input(random_pixels(2));
  const Features features = model.forward(
      batch, {.images = {{"global_0", {.student = false, .teacher = true}}, {"local_0", {}}}, .texts = {}});
  EXPECT_FALSE(features.images.contains("global_0"));
  EXPECT_TRUE(features.images.contains("local_0"));
}

TEST(Views, MergeTheNeedsOfTwoObjectives) {
  Needs a{.images = {{"global_0", {.student = false, .teacher = true}}}, .texts = {}};
  const Needs b{.images = {{"global_0", hiding(0.5)}}, .texts = {}};
  a.merge(b);
  const ViewNeeds both = a.images.at("global_0");
  EXPECT_TRUE(both.student && both.teacher && both.encoder_tokens);
  EXPECT_EQ(both.hidden.share, 0.5);
  EXPECT_THROW(a.merge({.images = {{"global_0", hiding(0.3)}}, .texts = {}}), UserError);
  EXPECT_THROW(a.merge({.images = {{"global_0", {}}}, .texts = {}}), UserError) << "a contrastive loss would see hidden patches";
}

}  // namespace
}  // namespace tessera
