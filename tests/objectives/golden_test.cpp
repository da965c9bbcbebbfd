#include "tests/support/golden.h"

namespace tessera {
namespace {

class GoldenObjectives : public testing::TestWithParam<std::string> {};

TEST_P(GoldenObjectives, Agrees) {
  expect_case_agrees(GetParam(), probe::core_runners());
}

INSTANTIATE_TEST_SUITE_P(Captions, GoldenObjectives, testing::ValuesIn(golden_cases("captions", "multi_positive_")),
                         golden_name);
INSTANTIATE_TEST_SUITE_P(CaptionLabels, GoldenObjectives, testing::ValuesIn(golden_cases("captions", "caption_labels")),
                         golden_name);
INSTANTIATE_TEST_SUITE_P(Subcaptions, GoldenObjectives, testing::ValuesIn(golden_cases("captions", "subcaption_")),
                         golden_name);
INSTANTIATE_TEST_SUITE_P(Flair, GoldenObjectives, testing::ValuesIn(golden_cases("flair", "flair_")), golden_name);
INSTANTIATE_TEST_SUITE_P(PyramidClip, GoldenObjectives, testing::ValuesIn(golden_cases("pyramidclip", "objective_")),
                         golden_name);
INSTANTIATE_TEST_SUITE_P(Sparc, GoldenObjectives, testing::ValuesIn(golden_cases("sparc")), golden_name);
INSTANTIATE_TEST_SUITE_P(Dino, GoldenObjectives, testing::ValuesIn(golden_cases("sparo", "dino_")), golden_name);
INSTANTIATE_TEST_SUITE_P(Teacher, GoldenObjectives, testing::ValuesIn(golden_cases("sparo", "teacher_")), golden_name);
INSTANTIATE_TEST_SUITE_P(Stair, GoldenObjectives, testing::ValuesIn(golden_cases("stair", "stair_")), golden_name);
INSTANTIATE_TEST_SUITE_P(FlopsRegularizer, GoldenObjectives, testing::ValuesIn(golden_cases("stair", "flops_")), golden_name);
INSTANTIATE_TEST_SUITE_P(TokenMultiHot, GoldenObjectives, testing::ValuesIn(golden_cases("stair", "multi_hot")), golden_name);
INSTANTIATE_TEST_SUITE_P(SuperClip, GoldenObjectives, testing::ValuesIn(golden_cases("superclip")), golden_name);
INSTANTIATE_TEST_SUITE_P(TextGroup, GoldenObjectives, testing::ValuesIn(golden_cases("text_group", "objective_")),
                         golden_name);
INSTANTIATE_TEST_SUITE_P(GradCache, GoldenObjectives, testing::ValuesIn(golden_cases("text_group", "grad_cache_")),
                         golden_name);

}  // namespace
}  // namespace tessera
