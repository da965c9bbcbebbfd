#include "tests/support/golden.h"

namespace tessera {
namespace {

class GoldenSparc : public testing::TestWithParam<std::string> {};

TEST_P(GoldenSparc, Agrees) {
  expect_case_agrees(GetParam(), probe::core_runners());
}

INSTANTIATE_TEST_SUITE_P(Cases, GoldenSparc, testing::ValuesIn(golden_cases("sparc")), golden_name);

}  // namespace
}  // namespace tessera
