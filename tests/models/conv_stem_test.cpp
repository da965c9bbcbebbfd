#include "src/models/batch_norm.h"
#include "src/models/conv_stem.h"
#include "tests/models/timm_cases.h"

namespace tessera {
namespace {

constexpr std::int64_t kStemWidth = 32;

TEST(ConvStem, MatchesTimmsPatches) {
  const at::NoGradGuard no_grad;
  const std::map<std::string, at::Tensor> want = timm_case("mobileclip_stem");
  ConvStem stem(kStemWidth);
  load_exactly(stem, below(want, "model."));
  expect_close(stem.forward(want.at("pixels")), want.at("map"), 1e-5);
  EXPECT_EQ(want.at("map").sizes(), (std::vector<std::int64_t>{2, kStemWidth, 3, 2}));
}

TEST(ConvStem, RowsAreIndependentInEvaluation) {
  const at::NoGradGuard no_grad;
  ConvStem stem(kStemWidth);
  stem.eval();
  const at::Tensor pixels = at::randn({3, 3, 32, 32}), together = stem.forward(pixels);
  for (std::int64_t row = 0; row < 3; ++row)
    expect_close(stem.forward(pixels.slice(0, row, row + 1))[0], together[row], 1e-5);
}

TEST(ConvStem, ReplacesThePatchConvolutionOfAVit) {
  const auto vit =
      encoder_of("vit", "{image_size: 32, patch_size: 16, width: 32, layers: 1, heads: 2, stem: mobileclip}");
  const std::map<std::string, at::Tensor> own = state_of(ConvStem(kStemWidth)), there = below(state_of(*vit), "conv1.");
  ASSERT_EQ(own.size(), there.size());
  for (const auto& [name, tensor] : own) {
    ASSERT_TRUE(there.contains(name)) << name;
    EXPECT_EQ(there.at(name).sizes(), tensor.sizes()) << name;
  }
  EXPECT_TRUE(mixes_rows(*vit));
  vit->eval();
  EXPECT_FALSE(mixes_rows(*vit));
}

}  // namespace
}  // namespace tessera
