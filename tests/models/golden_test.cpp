#include "tests/support/golden.h"

#include <tessera/probe/runner.h>

namespace tessera {
namespace {

class GoldenModels : public testing::TestWithParam<std::string> {};

TEST_P(GoldenModels, Agrees) {
  expect_case_agrees(GetParam(), probe::core_runners());
}

std::vector<std::string> readout_cases() {
  std::vector<std::string> cases;
  for (const char* name : {"attentional_pool", "cls", "eos", "fdt", "gap", "linear_bottleneck", "max", "slot_normalize",
                           "sparo", "sparsemax"})
    for (const std::string& path : golden_cases("sparo", std::string(name) + "_")) cases.push_back(path);
  return cases;
}

TEST(GoldenCases, PrefixWithoutFilesIsAnError) {
  EXPECT_FALSE(golden_cases("sparo", "cls_").empty());
  EXPECT_THROW(golden_cases("sparo", "class_"), std::runtime_error);
}

INSTANTIATE_TEST_SUITE_P(Encoders, GoldenModels, testing::ValuesIn(golden_cases("encoders")), golden_name);
INSTANTIATE_TEST_SUITE_P(ReadOuts, GoldenModels, testing::ValuesIn(readout_cases()), golden_name);
INSTANTIATE_TEST_SUITE_P(Leff, GoldenModels, testing::ValuesIn(golden_cases("pyramidclip", "leff_")), golden_name);
INSTANTIATE_TEST_SUITE_P(PyramidClipVit, GoldenModels, testing::ValuesIn(golden_cases("pyramidclip", "vit_")),
                         golden_name);
INSTANTIATE_TEST_SUITE_P(Regions, GoldenModels, testing::ValuesIn(golden_cases("pyramidclip", "roi_")), golden_name);
INSTANTIATE_TEST_SUITE_P(TokenProjection, GoldenModels, testing::ValuesIn(golden_cases("stair", "token_projection_")),
                         golden_name);
INSTANTIATE_TEST_SUITE_P(TokenLocalization, GoldenModels, testing::ValuesIn(golden_cases("stair", "localization_")),
                         golden_name);
INSTANTIATE_TEST_SUITE_P(SparcHead, GoldenModels, testing::ValuesIn(golden_cases("sparc", "sparc_head")), golden_name);

INSTANTIATE_TEST_SUITE_P(GroupingBlock, GoldenModels, testing::ValuesIn(golden_cases("text_group", "grouping_")),
                         golden_name);
INSTANTIATE_TEST_SUITE_P(TextGroupEncoder, GoldenModels, testing::ValuesIn(golden_cases("text_group", "encoder_")),
                         golden_name);
INSTANTIATE_TEST_SUITE_P(GroupProjection, GoldenModels, testing::ValuesIn(golden_cases("text_group", "projection_")),
                         golden_name);
INSTANTIATE_TEST_SUITE_P(CaptionDecoder, GoldenModels, testing::ValuesIn(golden_cases("text_group", "decoder_")),
                         golden_name);
INSTANTIATE_TEST_SUITE_P(Flair, GoldenModels, testing::ValuesIn(golden_cases("flair")), golden_name);
INSTANTIATE_TEST_SUITE_P(GroupVit, GoldenModels, testing::ValuesIn(golden_cases("text_group", "groupvit_")),
                         golden_name);

}  // namespace
}  // namespace tessera
