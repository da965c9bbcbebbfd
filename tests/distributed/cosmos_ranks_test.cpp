// Tests `cosmos` over ranks.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/distributed/ranks.h"
#include "tests/objectives/cosmos_case.h"

namespace tessera {
namespace {

// Returns the loss and gradients, averaged over ranks.
Tensors cosmos_rank(const std::string& yaml, const ProcessGroup& group) {
  const Features part = map_tensors(cosmos_features(8, /*gaps=*/true), [&](const at::Tensor& all) {
    return part_of(all.detach(), group).clone().requires_grad_(all.requires_grad());
  });
  const auto objective = made_cosmos(yaml);
  StepContext context;
  context.group = group;
  const Losses losses = objective->forward(part, context);
  losses.total.backward();
  Tensors out{{"loss", losses.total.detach().clone()}};
  for (const auto& [name, value] : losses.terms) out[name] = value.detach().clone();
  for (const auto& item : objective->named_parameters()) out["grad." + item.key()] = item.value().grad().clone();
  average(out, group);
  const auto leaves = cosmos_leaves(part);
  for (std::size_t i = 0; i < leaves.size(); ++i)
    out["grad.in." + std::to_string(i)] = group.all_gather(leaves[i].grad().contiguous()) / group.size();
  return out;
}

class CosmosOverRanks : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Settings, CosmosOverRanks,
                         testing::Values("global_captions: 2", "chunk: 2, global_captions: 3", "duplicates: masked",
                                         "duplicates: positive"),
                         [](const auto& each) { return std::to_string(each.index); });

TEST_P(CosmosOverRanks, MatchesTheGlobalBatch) {
  const std::string yaml = cosmos_yaml(GetParam());
  expect_same_as_one_rank({2, 4}, [&](const ProcessGroup& group) { return cosmos_rank(yaml, group); });
}

}  // namespace
}  // namespace tessera
