// Tests `captioning` over W ranks. Image i belongs to rank i % W. The tests must compute only inside run_ranks; the comment on run_ranks
// explains why.
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
  average(out, group);
  return out;
}

TEST(CaptioningOverRanks, MatchesOneProcess) {
  expect_same_as_one_rank({2, 4}, captioning_rank);
}

}  // namespace
}  // namespace tessera
