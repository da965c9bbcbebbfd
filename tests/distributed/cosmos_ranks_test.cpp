// Tests `cosmos` over ranks. Rank r has images rB/W .. (r+1)B/W-1.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/distributed/ranks.h"
#include "tests/objectives/cosmos_case.h"

namespace tessera {
namespace {

// Returns the loss and gradients, averaged over ranks.
Tensors cosmos_rank(const std::string& yaml, const ProcessGroup& group) {
  constexpr std::int64_t kImages = 8;
  const std::int64_t own = kImages / group.size();
  const Features part = map_tensors(cosmos_features(kImages, /*gaps=*/true), [&](const at::Tensor& all) {
    return all.detach().narrow(0, group.rank() * own, own).clone().requires_grad_(all.requires_grad());
  });
  const auto objective = made_cosmos(yaml);
  StepContext context;
  context.group = group;
  const Losses losses = objective->forward(part, context);
  losses.total.backward();
  Tensors out{{"loss", losses.total.detach().clone()}};
  for (const auto& [name, value] : losses.terms) out[name] = value.detach().clone();
  for (const auto& item : objective->named_parameters()) out["grad." + item.key()] = item.value().grad().clone();
  for (auto& [name, tensor] : out) group.all_reduce(tensor);
  for (auto& [name, tensor] : out) tensor /= group.size();
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
  const auto body = [&](const ProcessGroup& group) { return cosmos_rank(yaml, group); };
  const auto alone = run_ranks(1, body);
  ASSERT_EQ(alone.size(), 1U);
  for (const int size : {2, 4}) {
    const auto ranks = run_ranks(size, body, "gloo");
    ASSERT_EQ(ranks.size(), static_cast<std::size_t>(size));
    for (const Tensors& rank : ranks)
      for (const auto& [name, expected] : alone[0])
        EXPECT_TRUE(at::allclose(rank.at(name), expected, 1e-9, 1e-11)) << name << " on " << size;
  }
}

}  // namespace
}  // namespace tessera
