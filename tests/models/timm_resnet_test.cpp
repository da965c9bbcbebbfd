#include <cmath>

#include "src/models/batch_norm.h"
#include "tests/models/timm_cases.h"
#include "tests/support/test_name.h"

namespace tessera {
namespace {

/// Returns numbers in [-0.5, 0.5), computed from their positions and `seed` like formula() in make_timm.py.
at::Tensor numbers_by_formula(at::IntArrayRef shape, std::int64_t seed) {
  constexpr std::int64_t kRange = std::int64_t{1} << 32, kHalf = std::int64_t{1} << 16;
  const auto mixed = [](const at::Tensor& h) { return at::bitwise_xor(h, h.floor_divide(kHalf)); };
  at::Tensor h = at::arange(c10::multiply_integers(shape), at::kLong);
  h = mixed((h * 747796405 + (seed * 2891336453 + 1)).remainder(kRange));
  h = mixed((h * 73244475).remainder(kRange));
  return (h.to(at::kDouble) / static_cast<double>(kRange) - 0.5).view(shape);
}

/// Sets every parameter and buffer to the values that it has in make_timm.py.
void fill_by_formula(torch::nn::Module& module) {
  const at::NoGradGuard no_grad;
  std::int64_t seed = -1;
  for (const auto& [name, value] : state_of(module)) {
    ++seed;
    if (name.ends_with("num_batches_tracked")) continue;
    const at::Tensor x = numbers_by_formula(value.sizes(), seed);
    if (value.dim() > 1)
      value.copy_(x * std::sqrt(24.0 / static_cast<double>(value[0].numel())));
    else if (name.ends_with("running_var"))
      value.copy_(1 + x);
    else
      value.copy_((name.ends_with("weight") ? 1 : 0) + 0.2 * x);
  }
}

const std::string kResnetStart = "image_size: [64, 32], layers: [1, 2, 1, 1], ";
/// The ResNets of make_timm.py. Only `deep` gets images whose height and width are not divisible by the network's total stride.
const std::vector<TimmCase> kResnetCases = {
    {"basic", "{" + kResnetStart + "block: basic}"},
    {"bottleneck", "{" + kResnetStart + "block: bottleneck}"},
    {"deep_tiered",
     "{" + kResnetStart + "groups: 2, base_width: 16, stem: deep_tiered, stem_width: 32, mean_downsample: true}"},
    {"deep", "{" + kResnetStart + "block: basic, stem: deep, stem_width: 16, mean_downsample: true}"}};

class TimmResnetCases : public testing::TestWithParam<TimmCase> {
 protected:
  std::map<std::string, at::Tensor> want_ = timm_case("resnet_" + GetParam().name);
  std::shared_ptr<Encoder> encoder_ = encoder_of("timm_resnet", GetParam().settings);
};
INSTANTIATE_TEST_SUITE_P(Options, TimmResnetCases, testing::ValuesIn(kResnetCases), test_name<TimmCase>);

TEST_P(TimmResnetCases, MatchesTimmsNamesAndShapes) {
  const std::map<std::string, at::Tensor> shapes = below(want_, "shape."), state = state_of(*encoder_);
  EXPECT_EQ(state.size(), shapes.size());
  for (const auto& [name, shape] : shapes) {
    ASSERT_TRUE(state.contains(name)) << name;
    const at::IntArrayRef sizes(shape.const_data_ptr<std::int64_t>(), static_cast<std::size_t>(shape.numel()));
    EXPECT_EQ(state.at(name).sizes(), sizes) << name;
  }
}

TEST_P(TimmResnetCases, MatchesTimmsMapAndPooledVector) {
  const at::NoGradGuard no_grad;
  fill_by_formula(*encoder_);
  encoder_->eval();
  const Encoded got = encode(*encoder_, want_.at("pixels"));
  const at::Tensor want = tokens_of_map(want_.at("map"));
  const double size = want.abs().max().item<double>();
  expect_close(got.tokens, want, 1e-5 * size);
  expect_close(encoder_->final_norm(got.tokens.mean(1)), want_.at("pooled"), 1e-5 * size);
  EXPECT_EQ(got.grid.height, want_.at("map").size(2));
  EXPECT_EQ(got.grid.width, want_.at("map").size(3));
  EXPECT_EQ(encoder_->width(), got.tokens.size(2));
}

const std::string kBasicResnet = "{" + kResnetStart + "block: basic}";

TEST(TimmResnet, GridCountsPartialPositionsAtTheEdges) {
  const auto encoder = encoder_of("timm_resnet", "{image_size: [33, 96], layers: [1, 1, 1, 1], block: basic}");
  EXPECT_EQ(encoder->grid(), config::Size(2, 3));
  EXPECT_EQ(encode(*encoder, at::randn({2, 3, 33, 96})).grid, encoder->grid());
}

TEST(TimmResnet, RowsAreIndependentInEvaluation) {
  at::manual_seed(3);
  const auto encoder = encoder_of("timm_resnet", kBasicResnet);
  EXPECT_TRUE(mixes_rows(*encoder));
  encoder->eval();
  EXPECT_FALSE(mixes_rows(*encoder));
  expect_rows_alone(*encoder, at::randn({3, 3, 64, 32}));
}

TEST(TimmResnet, FrozenNormKeepsItsStatistics) {
  const auto encoder = encoder_of("timm_resnet", kBasicResnet);
  for (at::Tensor& parameter : encoder->parameters()) parameter.set_requires_grad(false);
  const at::Tensor mean = state_of(*encoder).at("bn1.running_mean");
  encode(*encoder, at::ones({2, 3, 64, 32}));
  EXPECT_EQ(mean.abs().max().item<double>(), 0);
  for (at::Tensor& parameter : encoder->parameters()) parameter.set_requires_grad(true);
  encode(*encoder, at::ones({2, 3, 64, 32}));
  EXPECT_GT(mean.abs().max().item<double>(), 0);
}

TEST(TimmResnet, LayerDecayCountsAStageAsABlock) {
  const auto encoder = encoder_of("timm_resnet", kBasicResnet);
  EXPECT_EQ(encoder->depth(), 5);
  EXPECT_EQ(encoder->depth_of("conv1.weight"), 0);
  EXPECT_EQ(encoder->depth_of("bn1.bias"), 0);
  EXPECT_EQ(encoder->depth_of("layer1.0.conv1.weight"), 1);
  EXPECT_EQ(encoder->depth_of("layer4.0.downsample.0.weight"), 4);
}

TEST(TimmResnet, RejectsGroupsInBasicBlocksAndTooSmallImages) {
  EXPECT_EQ(settings_error("timm_resnet", "{block: basic, groups: 32}"),
            "test.yaml:1: encoder.block: basic has neither groups nor another base_width");
  EXPECT_NE(settings_error("timm_resnet", "{image_size: 16}").find("encoder.image_size: 16 x 16"), std::string::npos);
  EXPECT_THROW(encode(*encoder_of("timm_resnet", kBasicResnet), at::randn({1, 3, 16, 64})), c10::Error);
}

}  // namespace
}  // namespace tessera
