#include <gtest/gtest.h>

#include "tests/objectives/pairs.h"
#include "tests/support/gradcheck.h"

namespace tessera {
namespace {

class ObjectiveGradients : public testing::TestWithParam<ObjectiveCase> {};

// Central differences in float64 over every input and parameter. Codes and prototypes are left out: their gradient is
// by definition not that of the function (codes count as constants, prototypes as unit rows); the reference cases cover
// them.
TEST_P(ObjectiveGradients, MatchFiniteDifferences) {
  std::string yaml = GetParam().yaml;
  if (GetParam().name == "mgca") yaml.insert(1, "prototype_weight: 0, ");
  const Pairs pairs = random_pairs({2, 1, 0}, 2, 3, 4);
  const auto objective = make_objective(GetParam().name, yaml, 4);
  std::vector<at::Tensor> leaves = pairs.embeddings();
  for (const auto& item : objective->named_parameters())
    if (item.key() != "prototypes.weight") leaves.push_back(item.value());
  expect_gradients_match(leaves, [&] { return objective->forward(pairs.features(), {}).total; });
}

// The hand-written backward passes, in tiles.
TEST_P(ObjectiveGradients, MatchFiniteDifferencesInTiles) {
  if (GetParam().name != "clip" && GetParam().name != "filip" && GetParam().name != "sparc")
    GTEST_SKIP() << "covered by ChunkChangesNothing";
  std::string yaml = GetParam().yaml;
  yaml.insert(1, yaml == "{}" ? "chunk: 2" : "chunk: 2, ");
  const Pairs pairs = random_pairs({2, 0, 1}, 2, 3, 4);
  const auto objective = make_objective(GetParam().name, yaml, 4);
  std::vector<at::Tensor> leaves = pairs.embeddings();
  leaves.push_back(objective->named_parameters()["logit_scale"]);
  expect_gradients_match(leaves, [&] { return objective->forward(pairs.features(), {}).total; });
}

INSTANTIATE_TEST_SUITE_P(All, ObjectiveGradients, testing::ValuesIn(all_objectives()), label_of);

}  // namespace
}  // namespace tessera
