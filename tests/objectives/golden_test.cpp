#include "tests/support/golden.h"

namespace tessera {
namespace {

class GoldenObjectives : public testing::TestWithParam<std::string> {};

TEST_P(GoldenObjectives, Agrees) {
  expect_case_agrees(GetParam(), probe::core_runners());
}

INSTANTIATE_TEST_SUITE_P(
    Cases, GoldenObjectives,
    testing::ValuesIn(golden_cases_of({{"captions", {"caption_labels", "multi_positive_", "subcaption_"}},
                                       {"flair", {"flair_"}},
                                       {"sparc", {""}},
                                       {"sparo", {"dino_", "teacher_"}},
                                       {"stair", {"flops_", "multi_hot", "stair_"}},
                                       {"superclip", {""}},
                                       {"teachers", {""}},
                                       {"text_group", {"grad_cache_", "objective_"}}})),
    golden_name);
// This is a separate suite because some of its cases have the same names as cases above.
INSTANTIATE_TEST_SUITE_P(PyramidClip, GoldenObjectives, testing::ValuesIn(golden_cases("pyramidclip", "objective_")), golden_name);

}  // namespace
}  // namespace tessera
