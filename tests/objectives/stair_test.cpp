#include <cmath>

#include <gtest/gtest.h>

#include "src/models/token_multi_hot.h"
#include "tests/objectives/pairs.h"

namespace tessera {
namespace {

constexpr std::int64_t kVocabulary = 12;

/// Image and text encodings in which about half of the entries are 0, and captions with invalid ids in the padding.
struct SparsePairs {
  at::Tensor image, text, ids, mask;

  explicit SparsePairs(std::int64_t batch = 4) {
    at::manual_seed(5);
    const auto encoding = [&] {
      return at::randn({batch, kVocabulary}, at::kDouble).clamp_min(0).log1p().requires_grad_(true);
    };
    image = encoding();
    text = encoding();
    mask = at::arange(6).unsqueeze(0) < at::arange(batch).remainder(6).add(1).unsqueeze(1);
    ids = at::randint(kVocabulary, {batch, 6}, at::kLong).masked_fill(~mask, -1);
  }
  Features features() const {
    Features out;
    out.images["image"].global = image;
    TowerFeatures& caption = out.texts["caption"];
    caption.global = text;
    caption.input = text_input(ids, mask);
    return out;
  }
};

std::shared_ptr<Objective> make_stair(const std::string& yaml, SharedParameters* shared = nullptr) {
  auto stair = objectives().make({"stair", config::parse_yaml(yaml, "test")}, "stair",
                                 {.embed_dim = kVocabulary, .shared = shared});
  stair->to(at::kDouble);
  return stair;
}

double value_of(const std::vector<std::pair<std::string, at::Tensor>>& all, const std::string& name) {
  return tensor_of(all, name).item<double>();
}

StepContext inspected_at(std::int64_t step) {
  return {.step = step, .inspect = true};
}

TEST(Stair, WeightsGrowWithTheSquareOfTheStep) {
  const SparsePairs pairs;
  const auto stair = make_stair("{lambda_image: 0.5, lambda_text: 0.25, lambda_growth_steps: 4}");
  for (const auto& [step, share] : std::vector<std::pair<std::int64_t, double>>{
           {0, 1.0 / 16}, {1, 4.0 / 16}, {2, 9.0 / 16}, {3, 1}, {4, 1}, {1000, 1}}) {
    const Losses losses = stair->forward(pairs.features(), inspected_at(step));
    EXPECT_DOUBLE_EQ(value_of(losses.terms, "lambda_image"), 0.5 * share) << step;
    EXPECT_DOUBLE_EQ(value_of(losses.terms, "lambda_text"), 0.25 * share) << step;
    EXPECT_DOUBLE_EQ(losses.total.item<double>(), value_of(losses.terms, "loss_contrastive") +
                                                      0.5 * share * value_of(losses.terms, "loss_flops_image") +
                                                      0.25 * share * value_of(losses.terms, "loss_flops_text"));
  }
  EXPECT_TRUE(stair->follows_step());
  const auto constant = make_stair("{lambda_image: 0.5}");
  EXPECT_FALSE(constant->follows_step());
  EXPECT_DOUBLE_EQ(value_of(constant->forward(pairs.features(), inspected_at(0)).terms, "lambda_image"), 0.5);
}

TEST(Stair, NeedsTheIdsOfTextsOnlyInTheFirstStage) {
  EXPECT_TRUE(make_stair("{text_token_mask: true}")->needs().texts.at("caption").input_ids);
  EXPECT_FALSE(make_stair("{}")->needs().texts.at("caption").input_ids);
}

TEST(Stair, IgnoresIdsInThePadding) {
  SparsePairs pairs;
  const auto stair = make_stair("{text_token_mask: true, special_token_ids: []}");
  const double expected = stair->forward(pairs.features(), {}).total.item<double>();
  for (const std::int64_t junk : {std::int64_t{0}, std::int64_t{5}, std::int64_t{1} << 40}) {
    pairs.ids = pairs.ids.masked_fill(~pairs.mask, junk);
    EXPECT_EQ(stair->forward(pairs.features(), {}).total.item<double>(), expected);
  }
}

TEST(Stair, SpecialTokensComeFromSettingsModelOrBert) {
  SparsePairs pairs(1);
  pairs.ids = at::arange(6).add(4).view({1, 6});
  pairs.mask = at::Tensor();
  pairs.text = at::ones({1, kVocabulary}, at::kDouble);
  const auto kept = [&](const std::string& yaml, SharedParameters* shared) {
    const auto stair = make_stair("{text_token_mask: true" + yaml + "}", shared);
    const at::Tensor text = tensor_of(stair->forward(pairs.features(), inspected_at(0)).details, "text_encoding");
    const at::Tensor ids = text[0].nonzero().view(-1);
    return std::vector<std::int64_t>(ids.const_data_ptr<std::int64_t>(),
                                     ids.const_data_ptr<std::int64_t>() + ids.numel());
  };
  SharedParameters shared;
  EXPECT_EQ(kept("", &shared), (std::vector<std::int64_t>{4, 5, 6, 7, 8, 9}));
  shared.special_token_ids = std::vector<std::int64_t>{4, 9};
  EXPECT_EQ(kept("", &shared), (std::vector<std::int64_t>{5, 6, 7, 8}));
  EXPECT_EQ(kept(", special_token_ids: [6]", &shared), (std::vector<std::int64_t>{4, 5, 7, 8, 9}));
  pairs.ids = at::tensor({0, 1, 2}, at::kLong).view({1, 3});
  EXPECT_EQ(kept("", nullptr), (std::vector<std::int64_t>{1, 2}));
}

TEST(Stair, ErrorNamesASpecialTokenOutsideTheVocabulary) {
  EXPECT_EQ(error_of([] { make_stair("{special_token_ids: [0, 12]}"); }),
            "objective.special_token_ids: 12 is not in the vocabulary 0..11: leave the setting out to take the "
            "tokenizer's");
}

TEST(Stair, EncodingShorterThanTheLimitHasZeroCosine) {
  const auto stair = make_stair("{}");
  SparsePairs pairs(2);
  pairs.image = pairs.image.detach();
  pairs.image[0] *= 3e-13 / pairs.image[0].norm();
  const at::Tensor logits = tensor_of(stair->forward(pairs.features(), inspected_at(0)).details, "logits");
  EXPECT_TRUE(logits[0].eq(0).all().item<bool>()) << logits;
  EXPECT_TRUE(logits[1].ne(0).any().item<bool>());
}

TEST(Stair, ZeroEncodingGetsNoGradientFromTheContrastiveLoss) {
  for (const char* yaml : {"{lambda_image: 0, lambda_text: 0}", "{lambda_image: 0, lambda_text: 0, chunk: 2}"}) {
    SCOPED_TRACE(yaml);
    SparsePairs pairs;
    for (at::Tensor* encoding : {&pairs.image, &pairs.text}) {
      at::Tensor values = encoding->detach() + 0.1;
      values[encoding == &pairs.image ? 0 : 2].zero_();
      *encoding = leaf(values);
    }
    make_stair(yaml)->forward(pairs.features(), {}).total.backward();
    EXPECT_EQ(pairs.image.grad()[0].abs().max().item<double>(), 0);
    EXPECT_EQ(pairs.text.grad()[2].abs().max().item<double>(), 0);
    for (const at::Tensor& gradient : {pairs.image.grad(), pairs.text.grad()}) {
      EXPECT_GT(gradient[1].abs().max().item<double>(), 0);
      EXPECT_LT(gradient.abs().max().item<double>(), 100);
    }
  }
}

TEST(Stair, RegularizersIgnoreAbsentPairs) {
  const SparsePairs all(5);
  const auto stair = make_stair("{skip_absent: true, lambda_image: 0.5, lambda_text: 0.3}");
  Features features = all.features();
  features.images["image"].present = at::tensor({1, 1, 0, 1, 1}).to(at::kBool);
  features.texts["caption"].present = at::tensor({1, 1, 1, 1, 0}).to(at::kBool);
  const at::Tensor kept = at::tensor({0, 1, 3}, at::kLong);
  Features of_kept = all.features();
  of_kept.images["image"].global = all.image.detach().index_select(0, kept);
  of_kept.texts["caption"].global = all.text.detach().index_select(0, kept);
  const Losses ours = stair->forward(features, {}), theirs = stair->forward(of_kept, {});
  EXPECT_NEAR(ours.total.item<double>(), theirs.total.item<double>(), 1e-12);
  for (const auto& [name, value] : ours.terms)
    EXPECT_NEAR(value.item<double>(), value_of(theirs.terms, name), 1e-12) << name;
  for (const auto& [name, value] : ours.statistics)
    EXPECT_NEAR(value.item<double>(), value_of(theirs.statistics, name), 1e-12) << name;
}

TEST(Stair, StatisticsCountActiveTokens) {
  SparsePairs pairs(2);
  pairs.image = at::zeros({2, kVocabulary}, at::kDouble);
  pairs.text = at::zeros({2, kVocabulary}, at::kDouble);
  pairs.image[0][3] = 1;
  pairs.image[0][5] = 0.5;
  pairs.image[1][3] = 1e-6;
  pairs.text[1][0] = 2;
  const Losses losses = make_stair("{}")->forward(pairs.features(), {});
  EXPECT_EQ(value_of(losses.statistics, "active_tokens.image"), 1.5);
  EXPECT_EQ(value_of(losses.statistics, "active_tokens.text"), 0.5);
  EXPECT_TRUE(at::equal(tensor_of(losses.used, "dead_tokens.image").nonzero().view(-1), at::tensor({3, 5}, at::kLong)));
  EXPECT_TRUE(at::equal(tensor_of(losses.used, "dead_tokens.text").nonzero().view(-1), at::tensor({0}, at::kLong)));
}

TEST(TokenMultiHot, IgnoresSpecialIdsOutsideTheVocabulary) {
  const at::Tensor ids = at::tensor({0, 3, 1, 2}, at::kLong).view({2, 2});
  const at::Tensor hot = token_multi_hot(ids, {}, 4, at::tensor({3, 4, 1000, -1}, at::kLong));
  EXPECT_TRUE(hot.equal(at::tensor({1, 0, 0, 0, 0, 1, 1, 0}).view({2, 4}).to(at::kBool))) << hot;
}

TEST(TokenMultiHot, ErrorsNameWrongInputs) {
  const auto error = [](const at::Tensor& ids, const at::Tensor& mask) {
    return error_of<c10::Error>([&] { token_multi_hot(ids, mask, 10); });
  };
  const at::Tensor ids = at::zeros({2, 3}, at::kLong);
  EXPECT_EQ(error(ids[0], {}), "token_multi_hot: ids must be [B, L] int64, got [3] Long");
  EXPECT_EQ(error(ids.to(at::kInt), {}), "token_multi_hot: ids must be [B, L] int64, got [2, 3] Int");
  EXPECT_EQ(error(ids, at::ones({2, 2}, at::kBool)),
            "token_multi_hot: mask must be [B, L] = [2, 3] bool, got [2, 2] Bool");
  for (const std::int64_t outside : {-1, 10, 11})
    EXPECT_EQ(error(at::full({2, 3}, outside, at::kLong), {}),
              "token_multi_hot: an id is not in the vocabulary 0..9");
}

}  // namespace
}  // namespace tessera
