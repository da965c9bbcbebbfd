#include "tests/support/golden.h"

#include "tests/reference/runner.h"

namespace tessera {
namespace {

class GoldenModels : public testing::TestWithParam<std::string> {};

TEST_P(GoldenModels, Agrees) {
  expect_case_agrees(GetParam(), probe::core_runners());
}

TEST(GoldenCases, PrefixWithoutFilesIsAnError) {
  EXPECT_FALSE(golden_cases("sparo", "cls_").empty());
  EXPECT_THROW(golden_cases("sparo", "class_"), std::runtime_error);
}

INSTANTIATE_TEST_SUITE_P(
    Cases, GoldenModels,
    testing::ValuesIn(golden_cases_of(
        {{"encoders", {""}},
         {"flair", {""}},
         {"pyramidclip", {"leff_", "roi_", "vit_"}},
         {"sparc", {"sparc_head"}},
         {"sparo",
          {"attentional_pool_", "cls_", "eos_", "fdt_", "gap_", "linear_bottleneck_", "max_", "slot_normalize_", "sparo_", "sparsemax_"}},
         {"stair", {"localization_", "token_projection_"}},
         {"text_group", {"decoder_", "encoder_", "grouping_", "groupvit_", "projection_"}}})),
    golden_name);

}  // namespace
}  // namespace tessera
