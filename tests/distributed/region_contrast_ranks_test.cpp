// Tests `region_contrast` over ranks with different numbers of boxes. With four ranks, rank 1 has no boxes.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/distributed/ranks.h"
#include "tests/objectives/region_contrast_case.h"
#include <tessera/objectives/objective.h>

namespace tessera {
namespace {

Tensors region_rank(const std::string& more, const ProcessGroup& group) {
  const RegionCase whole = region_case();
  const std::int64_t count = 4 / group.size(), first = group.rank() * count;
  const RegionCase own = whole.part(first, count);
  const auto objective = objectives().make(
      {"region_contrast",
       config::parse_yaml(
           "{hard_weight: 0.5, rank_weight: 0.25, text_weight: 2, text_negatives: 2, rank_margin_bound: 100" + more +
               "}",
           "test")},
      "region_contrast", {.embed_dim = 4});
  objective->to(at::kDouble);
  StepContext context;
  context.group = group;
  objective->forward(own.features(), context);  // updates the margin that the next call uses
  const Losses losses = objective->forward(own.features(), context);
  losses.total.backward();
  Tensors out{{"loss", losses.total.detach().clone()}, {"margin", objective->named_buffers()["margin"].clone()}};
  for (const auto& [name, value] : losses.terms) out[name] = value.detach().clone();
  out["scale"] = objective->named_parameters()["logit_scale"].grad().clone();
  const std::vector<at::Tensor> leaves = own.leaves(), all = whole.leaves();
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    at::Tensor gradient = at::zeros_like(all[i]).detach();
    gradient.narrow(0, first, count).copy_(leaves[i].grad());
    out["gradient_" + std::to_string(i)] = gradient;
  }
  average(out, group);
  return out;
}

TEST(RegionContrastOverRanks, MatchesTheGlobalBatch) {
  for (const std::string more : {"", ", chunk: 2"}) {
    SCOPED_TRACE(more);
    expect_same_as_one_rank({1, 2, 4}, [&](const ProcessGroup& group) {
      const Tensors out = region_rank(more, group);
      EXPECT_GT(out.at("margin").item<double>(), 0);
      return out;
    });
  }
}

}  // namespace
}  // namespace tessera
