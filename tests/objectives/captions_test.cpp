#include <cmath>

#include <gtest/gtest.h>

#include "src/objectives/flair.h"
#include "tests/objectives/pairs.h"
#include "tests/ops/largest_allocation.h"
#include "tests/support/gradcheck.h"
#include <tessera/objectives/objective.h>
#include <tessera/ops/text_conditioned_pool.h>

namespace tessera {
namespace {

constexpr std::int64_t kCaptionWidth = 4;

/// Random features of images with several captions each.
struct CaptionCase {
  at::Tensor image_global, image_tokens, text_global, present, image_group, captions_group;

  Features features() const {
    Features out;
    out.images["image"].global = image_global;
    out.images["image"].tokens = image_tokens;
    out.texts["captions"].global = text_global;
    out.texts["captions"].present = present;
    out.duplicates.image_group = image_group;
    out.duplicates.captions_group = captions_group;
    return out;
  }
  std::vector<at::Tensor> leaves() const { return {image_global, image_tokens, text_global}; }
};

/// Returns random features. If there are four or more images, the last is a duplicate of the first, and the second and third
/// share a caption. Caption 1 of image 0 is absent. With `lone`, all captions of image 1 are absent too.
CaptionCase random_case(std::int64_t images, std::int64_t captions, bool lone = false, at::ScalarType type = at::kDouble) {
  at::manual_seed(3);
  const auto random = [&](at::IntArrayRef sizes) { return at::randn(sizes, type).requires_grad_(true); };
  CaptionCase out{random({images, kCaptionWidth}), random({images, 5, kCaptionWidth}), random({images, captions, kCaptionWidth}),
                  at::ones({images, captions}, at::kBool), at::arange(images) % std::max<std::int64_t>(1, images - 1),
                  at::arange(images * captions).view({images, captions})};
  if (captions > 1) out.present[0][1] = false;
  if (lone) out.present[1].fill_(false);
  if (images >= 4) out.captions_group[2][0] = out.captions_group[1][captions - 1].item<std::int64_t>();
  return out;
}

std::shared_ptr<Objective> made(const std::string& name, const std::string& yaml, at::ScalarType type = at::kDouble) {
  return make_objective(name, yaml, kCaptionWidth, type);
}

struct NamedObjective {
  std::string label, name, yaml;
};

std::vector<NamedObjective> caption_objectives() {
  std::vector<NamedObjective> out;
  for (const char* duplicates : {"negative", "masked", "positive"}) {
    for (const char* denominator : {"slot", "all", "negatives"})
      out.push_back({std::string("clip_") + denominator + "_" + duplicates, "multi_positive_clip",
                     std::string("{denominator: ") + denominator + ", duplicates: " + duplicates + "}"});
    for (const char* divisor : {"captions", "images"})
      out.push_back({std::string("sigmoid_") + divisor + "_" + duplicates, "multi_positive_sigmoid",
                     std::string("{init_logit_bias: -1, divisor: ") + divisor + ", duplicates: " + duplicates + "}"});
    for (const char* negatives : {"sampled", "all"})
      out.push_back({std::string("flair_") + negatives + "_" + duplicates, "flair",
                     std::string("{heads: 2, init_logit_bias: -1, negatives: ") + negatives + ", duplicates: " + duplicates + "}"});
  }
  out.push_back({"flair_without_zero", "flair", "{heads: 4, zero_token: false, conditioned_weight: 1, global_weight: 0}"});
  out.push_back({"grouping_batch", "subcaption_grouping", "{scope: batch}"});
  out.push_back({"grouping_image", "subcaption_grouping", "{scope: image, weights: softmax}"});
  out.push_back({"dreamlip", "dreamlip", "{scope: batch}"});
  return out;
}

class CaptionObjectives : public testing::TestWithParam<NamedObjective> {};
INSTANTIATE_TEST_SUITE_P(All, CaptionObjectives, testing::ValuesIn(caption_objectives()),
                         [](const auto& each) { return each.param.label; });

std::string with_chunk(const std::string& yaml, const std::string& chunk) {
  return yaml.substr(0, yaml.size() - 1) + ", " + chunk + "}";
}

TEST_P(CaptionObjectives, GradientsMatchFiniteDifferences) {
  for (const bool lone : {false, true}) {
    const CaptionCase given = random_case(4, 3, lone);
    const auto objective = made(GetParam().name, with_chunk(GetParam().yaml, "chunk: 2"));
    std::vector<at::Tensor> leaves = given.leaves();
    for (const auto& item : objective->named_parameters()) leaves.push_back(item.value());
    expect_gradients_match(leaves, [&] { return objective->forward(given.features(), {}).total; });
  }
}

TEST_P(CaptionObjectives, ChunkChangesNothing) {
  const CaptionCase given = random_case(7, 2);
  expect_chunks_change_nothing({1, 3, 100}, [&](const std::string& chunk) {
    const auto objective = made(GetParam().name, with_chunk(GetParam().yaml, chunk));
    return loss_and_gradients(objective->forward(given.features(), {}).total, given.leaves());
  });
}

TEST_P(CaptionObjectives, AbsentCaptionsHaveNoEffect) {
  const CaptionCase clean = random_case(4, 3, /*lone=*/true);
  CaptionCase spoiled = clean;
  const at::Tensor absent = clean.present.logical_not().unsqueeze(2);
  spoiled.text_global = leaf(clean.text_global.detach().masked_fill(absent, std::nan("")));
  spoiled.captions_group = clean.captions_group.masked_fill(clean.present.logical_not(), 0);
  const auto objective = made(GetParam().name, GetParam().yaml);
  const at::Tensor loss = objective->forward(clean.features(), {}).total,
                   of_spoiled = objective->forward(spoiled.features(), {}).total;
  EXPECT_EQ(loss.item<double>(), of_spoiled.item<double>());
  const at::Tensor gradient = torch::autograd::grad({of_spoiled}, {spoiled.text_global})[0];
  EXPECT_TRUE(at::isfinite(gradient).all().item<bool>());
  EXPECT_EQ(gradient.masked_select(absent).abs().sum().item<double>(), 0.0);
}

TEST_P(CaptionObjectives, LossWithoutCaptionsIsZero) {
  CaptionCase given = random_case(3, 2);
  given.present.fill_(false);
  const at::Tensor loss = made(GetParam().name, GetParam().yaml)->forward(given.features(), {}).total;
  EXPECT_EQ(loss.item<double>(), 0.0);
  for (const at::Tensor& each : loss_and_gradients(loss, given.leaves())) EXPECT_EQ(each.abs().sum().item<double>(), 0.0);
}

TEST_P(CaptionObjectives, BackwardCanRunTwice) {
  const CaptionCase given = random_case(4, 2);
  const auto objective = made(GetParam().name, GetParam().yaml);
  const at::Tensor loss = objective->forward(given.features(), {}).total;
  const auto once = torch::autograd::grad({loss}, {given.text_global}, {}, /*retain_graph=*/true)[0].clone();
  const auto again = torch::autograd::grad({2 * loss}, {given.text_global})[0];
  EXPECT_TRUE(at::allclose(2 * once, again, 1e-9, 1e-12));
}

TEST(CaptionContrasts, OneCaptionMatchesClipAndSiglip) {
  const CaptionCase given = random_case(6, 1);
  Features pairs = given.features();
  pairs.texts["caption"].global = given.text_global.squeeze(1);
  const auto both = [&](const std::string& several, const std::string& one, const std::string& yaml, const std::string& init) {
    const at::Tensor ours = made(several, "{" + yaml + "}")->forward(given.features(), {}).total,
                     theirs = made(one, init)->forward(pairs, {}).total;
    EXPECT_NEAR(ours.item<double>(), theirs.item<double>(), 1e-10) << several << " " << yaml;
    const auto a = torch::autograd::grad({ours}, {given.image_global, given.text_global}),
               b = torch::autograd::grad({theirs}, {given.image_global, given.text_global});
    for (std::size_t i = 0; i < 2; ++i) EXPECT_TRUE(at::allclose(a[i], b[i], 1e-8, 1e-12));
  };
  for (const char* denominator : {"slot", "all", "negatives"})
    both("multi_positive_clip", "clip", std::string("denominator: ") + denominator, "{}");
  both("multi_positive_sigmoid", "siglip", "divisor: captions", "{}");
}

TEST(CaptionContrasts, ViewOfOneTextIsOneCaptionPerImage) {
  const CaptionCase given = random_case(5, 1);
  Features pairs = given.features();
  pairs.texts["caption"].global = given.text_global.squeeze(1);
  EXPECT_EQ(made("multi_positive_clip", "{text_view: caption}")->forward(pairs, {}).total.item<double>(),
            made("multi_positive_clip", "{}")->forward(given.features(), {}).total.item<double>());
}

TEST(CaptionContrasts, RejectFeaturesThatDoNotFit) {
  CaptionCase given = random_case(4, 2);
  given.image_global = at::randn({3, kCaptionWidth}, at::kDouble);
  EXPECT_THROW(made("multi_positive_clip", "{}")->forward(given.features(), {}), c10::Error);
  given.image_global = at::Tensor();
  EXPECT_THROW(made("multi_positive_clip", "{}")->forward(given.features(), {}), std::exception);
}

TEST(FlairObjective, NegativesDependOnlyOnSeedAndStep) {
  const CaptionCase given = random_case(6, 4);
  const auto objective = made("flair", "{heads: 2}");
  const auto loss = [&](std::uint64_t seed, std::int64_t step) {
    return objective->forward(given.features(), {.step = step, .seed = seed}).total.item<double>();
  };
  EXPECT_EQ(loss(1, 5), loss(1, 5));
  EXPECT_NE(loss(1, 5), loss(1, 6));
  EXPECT_NE(loss(1, 5), loss(2, 5));
}

TEST(FlairObjective, SampledNegativesHaveTheMeanOfAll) {
  // Each conditioned term is B times a mean over pairs, with negatives drawn at random. Averaged over many draws, the terms approach their
  // mean over all possible draws.
  const CaptionCase given = random_case(3, 3);
  const auto sampled = made("flair", "{heads: 2, conditioned_weight: 1, global_weight: 0, init_logit_bias: 0}");
  Flair& flair = dynamic_cast<Flair&>(*sampled);
  double mean = 0, expected = 0;
  constexpr int kDraws = 4000;
  const at::NoGradGuard no_grad;
  for (int step = 0; step < kDraws; ++step)
    mean += flair.forward(given.features(), {.step = step}).total.item<double>() / kDraws;
  // Caption 1 of image 0 is absent, so only the image's captions 0 and 2 are drawn, equally often.
  int counted = 0;
  for (std::int64_t code = 0; code < 3 * 3 * 2; ++code) {
    const std::int64_t of_first = code % 2 * 2, of_second = code / 2 % 3, of_third = code / 6;
    const at::Tensor slots = at::tensor({of_first, of_second, of_third}, at::kLong).expand({3, 3});
    expected += flair.forward(given.features(), {}, slots).total.item<double>();
    ++counted;
  }
  EXPECT_NEAR(mean, expected / counted, 0.02 * std::abs(mean));
}

TEST(FlairObjective, NeverDrawsAnAbsentCaption) {
  CaptionCase given = random_case(4, 3);
  const std::vector<std::int64_t> only = {2, 1, 0, 2};  // for each image, the index of its only caption
  given.present.fill_(false);
  for (std::int64_t i = 0; i < 4; ++i) given.present[i][only[static_cast<std::size_t>(i)]] = true;
  const auto objective = made("flair", "{heads: 2, conditioned_weight: 1, global_weight: 0, init_logit_bias: 0}");
  Flair& flair = dynamic_cast<Flair&>(*objective);
  const double expected = flair.forward(given.features(), {}, at::tensor(only, at::kLong).expand({4, 4})).total.item<double>();
  for (std::int64_t step = 0; step < 5; ++step)
    EXPECT_DOUBLE_EQ(flair.forward(given.features(), {.step = step}).total.item<double>(), expected) << step;
}

TEST(FlairObjective, RejectsHeadsThatDoNotDivideTheWidth) {
  EXPECT_THROW(made("flair", "{heads: 3}"), std::exception);
}

// Returns random parameters of this type, for tokens 4 wide.
TextPoolParameters pool_parameters(std::int64_t heads, at::ScalarType type) {
  at::manual_seed(5);
  const auto random = [&](at::IntArrayRef sizes) { return at::randn(sizes).to(type).requires_grad_(true); };
  return {random({4}), random({4}),     random({4}),  random({4}),    random({4}), random({4}),
          random({12, 4}), random({12}), random({4, 4}), random({4}), heads};
}

// Returns the loss of all pairs of images and texts, with random parameters of this type that require gradients.
at::Tensor conditioned_loss(const at::Tensor& tokens, const at::Tensor& texts, std::int64_t pairs, at::ScalarType type = at::kFloat) {
  const TextPoolParameters parameters = pool_parameters(2, type);
  const auto number = [&] { return at::randn({}).to(type).requires_grad_(true); };
  return text_conditioned_loss(tokens, texts, number(), number(), parameters, [&](std::int64_t, std::int64_t images) {
    return ConditionedPairs{at::arange(pairs).expand({images, pairs}), at::ones({images, pairs}, at::kChar)};
  });
}

TEST(TextConditionedLoss, IsZeroWithoutPairs) {
  const std::int64_t sizes[][3] = {{0, 3, 3}, {2, 0, 0}, {2, 3, 0}};
  for (const auto& [images, texts, pairs] : sizes) {
    const at::Tensor tokens = at::randn({images, 5, 4}).requires_grad_(true);
    const at::Tensor loss = conditioned_loss(tokens, at::randn({texts, 4}), pairs);
    EXPECT_EQ(loss.item<double>(), 0);
    loss.backward();
    EXPECT_EQ(tokens.grad().abs().sum().item<double>(), 0) << images << " images, " << texts << " texts";
  }
}

TEST(TextConditionedLoss, ComputesInTheTypeOfTheTokensOrWider) {
  const at::Tensor tokens = at::randn({2, 5, 4}), texts = at::randn({3, 4});
  const double expected = conditioned_loss(tokens, texts, 3).item<double>();
  const at::Tensor wide = conditioned_loss(tokens.to(at::kDouble), texts, 3);
  EXPECT_EQ(wide.scalar_type(), at::kDouble);
  EXPECT_NEAR(wide.item<double>(), expected, 1e-4 * expected);
  const at::Tensor narrow = conditioned_loss(tokens.to(at::kBFloat16), texts.to(at::kBFloat16), 3, at::kBFloat16);
  EXPECT_EQ(narrow.scalar_type(), at::kFloat);
  EXPECT_NEAR(narrow.item<double>(), expected, 0.1 * expected);
}

TEST(TextConditionedLoss, OfSeveralImagesAtOnceEqualsThatOfOneByOne) {
  const at::Tensor tokens = at::randn({70, 5, 4}), texts = at::randn({7, 4});
  const std::int64_t cases[][2] = {{2, 7}, {1, 4}, {4, 1}, {1, 1}, {2, 0}};
  for (const auto& [heads, count] : cases) {
    const at::Tensor rows = at::randint(7, {70, count}), labels = at::randint(-1, 2, {70, count}).to(at::kChar);
    // On a CPU, float32 images are processed one by one, and several float64 images at once.
    const auto results = [&, heads = heads](at::ScalarType type) {
      const TextPoolParameters p = pool_parameters(heads, type);
      const at::Tensor x = tokens.clone().to(type).requires_grad_(true), y = texts.clone().to(type).requires_grad_(true),
                       scale = at::full({}, 3.0, type).requires_grad_(true), bias = at::full({}, -1.0, type).requires_grad_(true);
      const at::Tensor loss = text_conditioned_loss(x, y, scale, bias, p, [&](std::int64_t first, std::int64_t images) {
        return ConditionedPairs{rows.narrow(0, first, images), labels.narrow(0, first, images)};
      });
      loss.backward();
      std::vector<at::Tensor> out = {loss.detach()};
      for (const at::Tensor& leaf : {x, y, scale, bias, p.query_norm_weight, p.key_norm_weight, p.value_norm_bias, p.in_weight, p.in_bias,
                                     p.out_weight, p.out_bias})
        out.push_back(leaf.grad());
      return out;
    };
    const auto one_by_one = results(at::kFloat), together = results(at::kDouble);
    for (std::size_t i = 0; i < together.size(); ++i)
      EXPECT_LT((one_by_one[i] - together[i]).abs().max().item<double>(), 1e-5 * (1 + together[i].abs().max().item<double>()))
          << heads << " heads, " << count << " pairs, result " << i;
  }
}

TEST(TextConditionedLoss, RoundsTheOperandsOfProductsForBfloat16Tokens) {
  at::manual_seed(6);
  const at::Tensor tokens = at::randn({70, 5, 4}).to(at::kBFloat16), texts = at::randn({7, 4});
  const auto results = [&](at::ScalarType type) {
    const TextPoolParameters p = pool_parameters(2, at::kFloat);
    const at::Tensor x = tokens.clone().to(type).requires_grad_(true), y = texts.clone().requires_grad_(true),
                     scale = at::full({}, 3.0).requires_grad_(true), bias = at::full({}, -1.0).requires_grad_(true);
    const at::Tensor loss = text_conditioned_loss(x, y, scale, bias, p, [&](std::int64_t first, std::int64_t images) {
      const at::Tensor own = at::arange(first, first + images).unsqueeze(1) % 7;
      return ConditionedPairs{at::arange(7).expand({images, 7}), at::where(at::arange(7) == own, 1, -1).to(at::kChar)};
    });
    loss.backward();
    std::vector<at::Tensor> out = {loss.detach()};
    for (const at::Tensor& leaf : {x, y, scale, bias, p.query_norm_weight, p.key_norm_weight, p.in_weight, p.in_bias, p.out_weight,
                                   p.out_bias})
      out.push_back(leaf.grad().to(at::kFloat));
    return out;
  };
  const auto narrow = results(at::kBFloat16), wide = results(at::kFloat);
  EXPECT_NE(narrow[0].item<float>(), wide[0].item<float>());
  for (std::size_t i = 0; i < wide.size(); ++i)
    EXPECT_LT((narrow[i] - wide[i]).norm().item<double>(), 0.01 * wide[i].norm().item<double>()) << "result " << i;
}

TEST(TextConditionedLoss, WithoutRecordingComputesNoGradients) {
  const at::Tensor tokens = at::randn({16, 50, 4}), texts = at::randn({3, 4});
  const at::NoGradGuard no_grad;
  const LargestAllocation largest;
  conditioned_loss(tokens, texts, 3);
  EXPECT_LT(largest.bytes(), static_cast<std::int64_t>(tokens.nbytes())) << "the gradient of the tokens is as large as they are";
}

}  // namespace
}  // namespace tessera
