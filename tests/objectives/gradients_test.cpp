#include <gtest/gtest.h>

#include "src/objectives/mgca.h"
#include "tests/objectives/pairs.h"
#include "tests/support/gradcheck.h"

namespace tessera {
namespace {

class ObjectiveGradients : public testing::TestWithParam<ObjectiveCase> {};

// Compares the gradients of every input and parameter with central differences in float64. Leaves out MGCA's prototypes and codes: by
// definition, their gradients are not the derivatives of the loss, because they treat codes as constants and prototypes as rows that
// already have length 1. The tests MgcaPrototypes cover them. ObjectiveProperties.ChunkChangesNothing covers the backward passes in tiles.
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

// Compares MGCA's prototype term with the same term composed of plain operations. In the composed term, codes are constants, and
// prototype rows are taken as they are, because they are unit vectors already. The gradients of the composed term match central
// differences.
TEST(MgcaPrototypes, GradientsTreatCodesAsConstantsAndPrototypesAsUnitRows) {
  for (const char* temperature : {"0.2", "null"}) {
    const std::string yaml = std::string(
                                 "{num_prototypes: 6, global_weight: 0, local_weight: 0, prototype_weight: 1.5, "
                                 "prototype_temperature: ") +
                             temperature + "}";
    const Pairs pairs = random_pairs({2, 1, 3, 0}, 3, 3, 4);
    const auto objective = make_objective("mgca", yaml, 4);
    const Losses losses = objective->forward(pairs.features(), {.inspect = true});
    ASSERT_EQ(losses.details[0].first, "image_codes");
    ASSERT_EQ(losses.details[1].first, "text_codes");
    const at::Tensor scale = objective->named_parameters()["logit_scale"];
    const at::Tensor prototypes = objective->named_parameters()["prototypes.weight"];
    const at::Tensor rows = prototypes.detach().clone().requires_grad_(true);
    const auto composed = [&] {
      const auto scores = [&](const at::Tensor& x) { return at::matmul(x / x.norm(2, -1, true), rows.t()); };
      const at::Tensor sharpness = std::string(temperature) == "null" ? scale.exp() : at::full({}, 5.0, at::kDouble);
      const auto agreement = [&](std::size_t codes, const at::Tensor& x) {
        return (losses.details[codes].second * (scores(x) * sharpness).log_softmax(1)).sum(1).mean();
      };
      return -0.75 * (agreement(0, pairs.text_global) + agreement(1, pairs.image_global));
    };
    expect_gradients_match({pairs.image_global, pairs.text_global, rows, scale}, composed);
    EXPECT_TRUE(at::allclose(rows.detach().norm(2, -1), at::ones({6}, at::kDouble)));
    const auto ours = torch::autograd::grad({losses.total}, {pairs.image_global, pairs.text_global, prototypes, scale},
                                            {}, std::nullopt, false, /*allow_unused=*/true);
    const auto theirs = torch::autograd::grad({composed()}, {pairs.image_global, pairs.text_global, rows, scale}, {},
                                              std::nullopt, false, /*allow_unused=*/true);
    EXPECT_TRUE(at::allclose(losses.total, composed(), 1e-9));
    for (std::size_t i = 0; i < 4; ++i) {
      const at::Tensor expected = theirs[i].defined() ? theirs[i] : at::zeros_like(scale);
      EXPECT_TRUE(at::allclose(ours[i].defined() ? ours[i] : at::zeros_like(scale), expected, 1e-6, 1e-8)) << i;
    }
  }
}

// Computes the Sinkhorn-Knopp iterations on the matrices themselves, not on their logarithms.
TEST(MgcaPrototypes, CodesMatchSinkhornIterations) {
  at::manual_seed(4);
  const at::Tensor scores = at::rand({5, 7}, at::kDouble);
  for (const std::int64_t iterations : {0, 1, 3}) {
    at::Tensor q = (scores / 0.05).exp().t();
    q = q / q.sum();
    for (std::int64_t i = 0; i < iterations; ++i) {
      q = q / q.sum(1, true) / 7.0;
      q = q / q.sum(0, true) / 5.0;
    }
    EXPECT_TRUE(at::allclose(sinkhorn_codes(scores, 0.05, iterations), (q / q.sum(0, true)).t(), 1e-10));
  }
  EXPECT_TRUE(at::isfinite(sinkhorn_codes(1000 * scores, 0.05, 3)).all().item<bool>());
}

INSTANTIATE_TEST_SUITE_P(All, ObjectiveGradients, testing::ValuesIn(all_objectives()), label_of);

}  // namespace
}  // namespace tessera
