// Tests `captioning` over ranks, which take the images in turn. Only run_ranks may compute in this process; see its comment.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/distributed/ranks.h"
#include "tests/objectives/captioning_case.h"

namespace tessera {
namespace {

Tensors captioning_rank(const ProcessGroup& group) {
  DescribedImages images;
  const auto objective = images.objective("parallel: 0.5, referring_weight: 1, grounded_weight: 0.5");
  std::vector<std::int64_t> own;
  for (std::int64_t i = group.rank(); i < 4; i += group.size()) own.push_back(i);
  Tensors out;
  for (std::int64_t step = 0; step < 3; ++step) {
    StepContext context;
    context.group = group;
    context.seed = 5;
    context.step = step;
    const DescribedImages part = images.at(own);
    const Losses losses = objective->forward(part.features(), context);
    losses.total.backward();
    for (const auto& [name, term] : losses.terms) out[concat(step, name)] = term.detach().clone();
  }
  for (const auto& item : objective->named_parameters()) out["gradient of " + item.key()] = item.value().grad().clone();
  out["gradient of the table"] = images.shared.token_embedding.grad().clone();
  for (auto& [name, tensor] : out) group.all_reduce(tensor);
  for (auto& [name, tensor] : out) tensor /= group.size();
  return out;
}

TEST(CaptioningOverRanks, MatchesOneProcess) {
  const Tensors alone = run_ranks(1, captioning_rank).at(0);
  for (const int size : {2, 4}) {
    const auto ranks = run_ranks(size, captioning_rank, "gloo");
    ASSERT_EQ(ranks.size(), static_cast<std::size_t>(size));
    for (const Tensors& rank : ranks)
      for (const auto& [name, expected] : alone)
        EXPECT_TRUE(at::allclose(rank.at(name), expected, 1e-9, 1e-11)) << name << " of " << size << " ranks";
  }
}

}  // namespace
}  // namespace tessera
