#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/modules/batchnorm.h>

#include "src/models/batch_norm.h"
#include "src/models/per_sample_rng.h"
#include "tests/models/timm_cases.h"
#include "tests/support/test_name.h"

namespace tessera {
namespace {

/// The FastViTs of make_timm.py.
const std::vector<TimmCase> kFastVitCases = {
    {"mci0", "{image_size: [64, 96], layers: [1, 1, 1, 1], widths: [8, 16, 16, 32]}"},
    {"mci3", "{image_size: [40, 32], layers: [1, 2, 1], widths: [8, 16, 32], mlp_ratio: 2, squeezed_stages: 0, norm: layer, stem_scale: false}"},
    {"t8", "{image_size: 32, layers: [1, 1], widths: [8, 16], attention_stages: 0, squeezed_stages: 0, downsample_activation: false}"}};

class FastVitCases : public testing::TestWithParam<TimmCase> {
 protected:
  void SetUp() override { load_exactly(*encoder_, below(want_, "model.")); }
  std::map<std::string, at::Tensor> want_ = timm_case("fastvit_" + GetParam().name);
  std::shared_ptr<Encoder> encoder_ = encoder_of("fastvit", GetParam().settings);
};
INSTANTIATE_TEST_SUITE_P(Options, FastVitCases, testing::ValuesIn(kFastVitCases), test_name<TimmCase>);

TEST_P(FastVitCases, MatchesTimmsMapPooledVectorAndGradientOfThePixels) {
  const at::Tensor pixels = want_.at("pixels").clone().set_requires_grad(true);
  const Encoded got = encode(*encoder_, pixels);
  const at::Tensor pooled = got.tokens.mean(1);
  expect_close(got.tokens.detach(), tokens_of_map(want_.at("map")), 1e-5);
  expect_close(pooled.detach(), want_.at("pooled"), 1e-5);
  EXPECT_EQ(got.grid, encoder_->grid());
  EXPECT_EQ(encoder_->width(), got.tokens.size(2));
  const at::Tensor gradient = torch::autograd::grad({pooled.square().sum()}, {pixels})[0];
  const at::Tensor& want = want_.at("pixels_gradient");
  EXPECT_LE((gradient - want).norm().item<double>(), 1e-5 * want.norm().item<double>());
  expect_rows_alone(*encoder_, want_.at("pixels"));
}

TEST(FastVit, RejectsSettingsThatFitNoImage) {
  EXPECT_NE(settings_error("fastvit", "{layers: [1, 1]}").find("widths: has 4 stages, but layers has 2"), std::string::npos);
  EXPECT_NE(settings_error("fastvit", "{image_size: 16}").find("image_size: 16 x 16 is below 32"), std::string::npos) << settings_error("fastvit", "{image_size: 16}");
  EXPECT_NE(settings_error("fastvit", "{attention_stages: 5}").find("attention_stages"), std::string::npos);
  EXPECT_NE(settings_error("fastvit", "{widths: [64, 128, 256, 500]}").find("500 is not a multiple of 32"), std::string::npos);
}

TEST(FastVit, DropPathDependsOnTheSampleAlone) {
  const auto encoder = encoder_of("fastvit", "{image_size: 32, layers: [2, 2], widths: [8, 32], squeezed_stages: 0, drop_path: 0.5, layer_scale_init: 1}");
  for (const auto& module : encoder->modules())
    if (auto* norm = module->as<torch::nn::BatchNorm2d>()) norm->eval();  // batch norms of training mix rows
  const at::NoGradGuard no_grad;
  const at::Tensor pixels = at::randn({6, 3, 32, 32});
  const auto tokens = [&](const at::Tensor& rows, const at::Tensor& keys) {
    const RowRngScope scope(keys);
    return encode(*encoder, rows).tokens;
  };
  const at::Tensor keys = row_keys(1, 0, 1, 6), whole = tokens(pixels, keys);
  expect_close(tokens(pixels.slice(0, 2, 5), keys.slice(0, 2, 5)), whole.slice(0, 2, 5), 1e-5);
  EXPECT_GT((tokens(pixels, row_keys(2, 0, 1, 6)) - whole).abs().max().item<double>(), 1e-3) << "another step";
}

const std::string kConvNextStart = "image_size: [64, 32], layers: [1, 2, 1, 1], ";
const std::string kPlainConvNext = "{" + kConvNextStart + "widths: [8, 12, 16, 20]}";

/// The ConvNeXts of make_timm.py. Each of timm's options has a non-default value in at least one of these models.
const std::vector<TimmCase> kConvNextCases = {
    {"patch", kPlainConvNext},
    {"overlap_tiered",
     "{" + kConvNextStart + "widths: [24, 8, 12, 16], stem: overlap_tiered, conv_mlp: true, activation: gelu_tanh}"},
    {"overlap_act", "{" + kConvNextStart +
                        "widths: [8, 12, 16, 20], stem: overlap_act, conv_mlp: true, response_norm: true, "
                        "layer_scale_init: null, kernel_sizes: [3, 5, 7, 3], activation: silu}"},
    {"overlap", "{" + kConvNextStart +
                    "widths: [8, 12, 16, 20], stem: overlap, response_norm: true, layer_scale_init: null, "
                    "conv_bias: false, norm_eps: 0.001}"},
    {"norm_first", "{" + kConvNextStart + "widths: [8, 12, 16, 20], norm_first: true, norm_eps: 0.00001}", false}};

class ConvNextCases : public testing::TestWithParam<TimmCase> {
 protected:
  void SetUp() override { load_exactly(*encoder_, below(want_, "model.")); }
  std::map<std::string, at::Tensor> want_ = timm_case("convnext_" + GetParam().name);
  std::shared_ptr<Encoder> encoder_ = encoder_of("convnext", GetParam().settings);
};
INSTANTIATE_TEST_SUITE_P(Options, ConvNextCases, testing::ValuesIn(kConvNextCases), test_name<TimmCase>);

TEST_P(ConvNextCases, MatchesTimmsMapAndPooledVector) {
  const at::NoGradGuard no_grad;
  const Encoded got = encode(*encoder_, want_.at("pixels"));
  expect_close(got.tokens, tokens_of_map(want_.at("map")), 1e-5);
  expect_close(encoder_->final_norm(got.tokens.mean(1)), want_.at("pooled"), 1e-5);
  EXPECT_EQ(encoder_->norms_pooled(), GetParam().norms_pooled);
  EXPECT_EQ(got.grid.height, 2);
  EXPECT_EQ(got.grid.width, 1);
  EXPECT_EQ(encoder_->width(), got.tokens.size(2));
  EXPECT_FALSE(got.class_token.defined());
}

TEST_P(ConvNextCases, MatchesTimmsGradientOfThePixels) {
  const at::Tensor pixels = want_.at("pixels").clone().set_requires_grad(true);
  const at::Tensor pooled = encoder_->final_norm(encode(*encoder_, pixels).tokens.mean(1));
  const at::Tensor got = torch::autograd::grad({pooled.square().sum()}, {pixels})[0];
  const at::Tensor& want = want_.at("pixels_gradient");
  EXPECT_LE((got - want).norm().item<double>(), 1e-5 * want.norm().item<double>());
}

TEST_P(ConvNextCases, RowsAreIndependent) {
  EXPECT_FALSE(mixes_rows(*encoder_));
  expect_rows_alone(*encoder_, want_.at("pixels"));
}

TEST(ConvNext, TakesImagesOfOtherSizesThatTheStrideDivides) {
  const at::NoGradGuard no_grad;
  const auto encoder = encoder_of("convnext", kPlainConvNext);
  const Encoded out = encode(*encoder, at::randn({1, 3, 96, 128}));
  EXPECT_EQ(out.tokens.sizes(), (std::vector<std::int64_t>{1, 12, 20}));
  EXPECT_EQ(out.grid.height, 3);
  EXPECT_EQ(out.grid.width, 4);
  EXPECT_THROW(encode(*encoder, at::randn({1, 3, 96, 100})), c10::Error);
  EXPECT_THROW(encode(*encoder, at::randn({1, 1, 64, 32})), c10::Error);
}

TEST(ConvNext, RejectsSettingsThatFitNoImage) {
  EXPECT_EQ(settings_error("convnext", "{image_size: 100}"),
            "test.yaml:1: encoder.image_size: 100 x 100 is not a multiple of 32");
  EXPECT_EQ(settings_error("convnext", "{image_size: 32, patch_size: 8}"),
            "test.yaml:1: encoder.image_size: 32 x 32 is not a multiple of 64");
  EXPECT_EQ(settings_error("convnext", "{kernel_sizes: [7, 7, 4, 7]}"), "test.yaml:1: encoder.kernel_sizes: 4 is even");
}

TEST(ConvNext, LayerDecayCountsAStageAsABlock) {
  const auto encoder = encoder_of("convnext", kPlainConvNext);
  EXPECT_EQ(encoder->depth(), 5);
  EXPECT_EQ(encoder->depth_of("stem.1.weight"), 0);
  EXPECT_EQ(encoder->depth_of("stages.0.blocks.0.gamma"), 1);
  EXPECT_EQ(encoder->depth_of("stages.3.downsample.1.weight"), 4);
  EXPECT_EQ(encoder->depth_of("head.norm.weight"), 5);
}

TEST(ConvNext, DropPathSkipsBlocksInTrainingOnly) {
  const at::NoGradGuard no_grad;
  at::manual_seed(2);
  const std::string dropping = "{" + kConvNextStart + "widths: [8, 12, 16, 20], layer_scale_init: 1, drop_path: 0.9}";
  const auto encoder = encoder_of("convnext", dropping);
  const at::Tensor pixels = at::randn({1, 3, 64, 32}).expand({16, 3, 64, 32});
  EXPECT_TRUE(encoder->draws_when_frozen());
  const auto spread = [&] { return encode(*encoder, pixels).tokens.var(0).max().item<double>(); };
  encoder->eval();
  EXPECT_LE(spread(), 1e-10);
  encoder->train();
  EXPECT_GT(spread(), 1e-4);
}

}  // namespace
}  // namespace tessera
