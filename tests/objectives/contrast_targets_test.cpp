// Tests the settings that contrastive objectives share: the views of a pair, absent pairs and softened targets.
#include "tests/objectives/pairs.h"

namespace tessera {
namespace {

constexpr std::int64_t kRows = 6;

// Returns pairs. The second has no image, and the fifth has no text.
Pairs pairs_with_absent() {
  Pairs pairs = random_pairs({3, 1, 0, 2, 2, 1}, 3);
  pairs.image_present = at::tensor({1, 0, 1, 1, 1, 1}).to(at::kBool);
  pairs.text_present = at::tensor({1, 1, 1, 1, 0, 1}).to(at::kBool);
  return pairs;
}

// Returns the pairs with NaN in the rows of absent pairs.
Pairs with_junk(const Pairs& pairs) {
  const at::Tensor absent = ~(pairs.image_present & pairs.text_present);
  return map_embeddings(pairs, [&](const at::Tensor& x) {
    std::vector<std::int64_t> shape(static_cast<std::size_t>(x.dim()), 1);
    shape[0] = x.size(0);
    return x.masked_fill(absent.view(shape), std::nan(""));
  });
}

std::string with(const std::string& yaml, std::string more) {
  return "{" + more + (yaml == "{}" ? "" : ", ") + yaml.substr(1);
}

class AbsentPairs : public testing::TestWithParam<ObjectiveCase> {};

TEST_P(AbsentPairs, MatchABatchWithoutThem) {
  const Pairs pairs = with_junk(pairs_with_absent());
  const at::Tensor rows = at::tensor({0, 2, 3, 5}, at::kLong), absent = at::tensor({1, 4}, at::kLong);
  const Outcome expected = evaluate(*make_objective(GetParam().name, GetParam().yaml), only(pairs, rows));
  for (const char* more : {"skip_absent: true", "skip_absent: true, chunk: 2", "skip_absent: true, chunk: 4"}) {
    SCOPED_TRACE(more);
    const Outcome ours = evaluate(*make_objective(GetParam().name, with(GetParam().yaml, more)), pairs);
    EXPECT_NEAR(ours.loss.item<double>(), expected.loss.item<double>(), 1e-9);
    for (std::size_t i = 0; i < ours.gradients.size(); ++i) {
      EXPECT_TRUE(at::allclose(ours.gradients[i].index_select(0, rows), expected.gradients[i], 1e-8, 1e-10)) << i;
      EXPECT_EQ(ours.gradients[i].index_select(0, absent).abs().sum().item<double>(), 0) << i;
    }
  }
}

TEST_P(AbsentPairs, MayBeAllPairs) {
  Pairs pairs = pairs_with_absent();
  pairs.text_present = at::zeros({kRows}, at::kBool);
  pairs = with_junk(pairs);
  for (const char* more : {"skip_absent: true", "skip_absent: true, chunk: 2"}) {
    const Outcome ours = evaluate(*make_objective(GetParam().name, with(GetParam().yaml, more)), pairs);
    EXPECT_EQ(ours.loss.item<double>(), 0) << more;
    for (const at::Tensor& gradient : ours.gradients) EXPECT_EQ(gradient.abs().sum().item<double>(), 0) << more;
  }
}

std::vector<ObjectiveCase> objectives_on_pairs() {
  std::vector<ObjectiveCase> cases = all_objectives();
  std::erase_if(cases, [](const ObjectiveCase& each) { return each.name == "weighted_sum"; });
  return cases;
}

INSTANTIATE_TEST_SUITE_P(All, AbsentPairs, testing::ValuesIn(objectives_on_pairs()), label_of);

TEST(AbsentPairsOfABatch, GiveZeroLossWithoutTwoPresentPairs) {
  Pairs pairs = pairs_with_absent();
  pairs.text_present = at::arange(kRows) == 3;
  pairs = with_junk(pairs);
  for (const char* name : {"clip", "filip", "pacl", "gloria"})
    for (const char* more : {"", ", chunk: 2", ", label_smoothing: 0.2", ", label_smoothing: 0.2, chunk: 2"}) {
      SCOPED_TRACE(std::string(name) + more);
      const Outcome ours = evaluate(*make_objective(name, std::string("{skip_absent: true") + more + "}"), pairs);
      EXPECT_NEAR(ours.loss.item<double>(), 0, 1e-14);  // not exactly 0, because tiles and matrix products round differently
      for (const at::Tensor& gradient : ours.gradients) EXPECT_LT(gradient.abs().max().item<double>(), 1e-14);
    }
}

TEST(AbsentPairsOfABatch, ErrorNamesAWrongMask) {
  Pairs pairs = pairs_with_absent();
  pairs.image_present = at::ones({kRows});
  EXPECT_EQ(error_of<c10::Error>([&] { make_objective("clip", "{skip_absent: true}")->forward(pairs.features(), {}); }),
            "clip: present must be [B] = [6] bool, got [6] Float");
}

// Returns the cross-entropy between softened targets and the softmax, averaged over the rows of present pairs. A row's softmax covers the
// row's own column and the columns of present pairs from other groups.
at::Tensor softened_cross_entropy(const at::Tensor& logits, const at::Tensor& present, const at::Tensor& groups,
                                  double smoothing) {
  at::Tensor sum = at::zeros({}, at::kDouble);
  const auto number = [](const at::Tensor& x, std::int64_t i) { return x[i].item<std::int64_t>(); };
  for (std::int64_t i = 0; i < logits.size(0); ++i) {
    if (!number(present, i)) continue;
    std::vector<std::int64_t> columns;
    for (std::int64_t j = 0; j < logits.size(1); ++j)
      if (i == j || (number(present, j) && number(groups, i) != number(groups, j))) columns.push_back(j);
    const at::Tensor log_shares = logits[i].index_select(0, at::tensor(columns)).log_softmax(0);
    const double negatives = static_cast<double>(columns.size()) - 1;
    for (std::size_t k = 0; k < columns.size(); ++k) {
      const double target = columns[k] != i ? smoothing / negatives : negatives > 0 ? 1 - smoothing : 1.0;
      sum = sum - target * log_shares[static_cast<std::int64_t>(k)];
    }
  }
  return sum / std::max<std::int64_t>(1, present.sum().item<std::int64_t>());
}

// golden/pyramidclip.md has the definition. The test covers three groupings: all pairs differ, some are duplicates, and all are
// the same.
TEST(SoftenedTargets, MatchTheDefinitionWithDuplicatesAndAbsentPairs) {
  const at::Tensor all = at::ones({kRows}, at::kBool), some = at::tensor({1, 0, 1, 1, 1, 1}).to(at::kBool);
  const at::Tensor different = at::arange(kRows), repeated = at::tensor({0, 1, 2, 3, 0, 3}, at::kLong),
                   same = at::zeros({kRows}, at::kLong);
  for (const at::Tensor& present : {all, some})
    for (const at::Tensor& groups : {different, repeated, same})
      for (const char* chunk : {"", ", chunk: 1", ", chunk: 4"}) {
        Pairs pairs = pairs_with_absent();
        pairs.text_present = at::Tensor();
        pairs.image_present = present;
        pairs.image_group = groups;
        pairs.caption_group = at::Tensor();
        const auto clip = make_objective(
            "clip", std::string("{label_smoothing: 0.2, skip_absent: true, mask_duplicates: true") + chunk + "}");
        const at::Tensor scale = clip->named_parameters()["logit_scale"];
        const auto unit = [](const at::Tensor& x) { return x / x.norm(2, -1, true); };
        const at::Tensor logits = at::matmul(unit(pairs.image_global), unit(pairs.text_global).t()) * scale.exp();
        const at::Tensor expected = (softened_cross_entropy(logits, present, groups, 0.2) +
                                     softened_cross_entropy(logits.t(), present, groups, 0.2)) /
                                    2;
        const at::Tensor loss = clip->forward(pairs.features(), {}).total;
        EXPECT_NEAR(loss.item<double>(), expected.item<double>(), 1e-12);
        const std::vector<at::Tensor> leaves = {pairs.image_global, pairs.text_global, scale};
        const auto ours = torch::autograd::grad({loss}, leaves), theirs = torch::autograd::grad({expected}, leaves);
        for (std::size_t i = 0; i < leaves.size(); ++i)
          EXPECT_TRUE(at::allclose(ours[i], theirs[i], 1e-9, 1e-12)) << i << ": " << ours[i] << " v " << theirs[i];
      }
}

class ViewsOfPairs : public testing::TestWithParam<ObjectiveCase> {};

TEST_P(ViewsOfPairs, AreThoseOfTheSettings) {
  const Pairs pairs = random_pairs({3, 1, 0, 2}, 3);
  const auto plain = make_objective(GetParam().name, GetParam().yaml);
  const auto named = make_objective(GetParam().name, with(GetParam().yaml, "image_view: local, text_view: summary"));
  const auto loose = make_objective(GetParam().name, with(GetParam().yaml, "text_view: summary, skip_absent: true"));
  Features features = pairs.features();
  features.images["local"] = std::exchange(features.images["image"], {});
  features.texts["summary"] = std::exchange(features.texts["caption"], {});
  EXPECT_TRUE(at::allclose(named->forward(features, {}).total, plain->forward(pairs.features(), {}).total, 1e-12));

  Needs expected = plain->needs();
  ASSERT_EQ(expected.images.size(), 1u);
  expected.images = {{"local", expected.images.at("image")}};
  expected.texts = {{"summary", expected.texts.at("caption")}};
  EXPECT_EQ(named->needs().images, expected.images);
  // Returns the text views that the objective needs, without the hard negatives, whose view has a fixed name.
  const auto texts_of_pairs = [](const Objective& objective) {
    Needs needs = objective.needs();
    needs.texts.erase(kNegatives);
    return needs.texts;
  };
  EXPECT_EQ(texts_of_pairs(*named), expected.texts);
  expected.images = plain->needs().images;
  expected.images.at("image").optional = expected.texts.at("summary").optional = true;
  EXPECT_EQ(loose->needs().images, expected.images);
  EXPECT_EQ(texts_of_pairs(*loose), expected.texts);
}

INSTANTIATE_TEST_SUITE_P(All, ViewsOfPairs, testing::ValuesIn(objectives_on_pairs()), label_of);

}  // namespace
}  // namespace tessera
