// Tests the setting hard_negatives of clip and siglip, which adds hard-negative texts to the texts of the batch. Compares the losses
// with the formulas, computed entry by entry.
#include "tests/objectives/pairs.h"

namespace tessera {
namespace {

constexpr std::int64_t kNegativePairs = 5, kNegativesEach = 3;

// Returns pairs with three hard negatives each, except that the second has none and the fourth has one. Absent negatives are NaN.
Pairs pairs_with_negatives() {
  Pairs pairs = random_pairs({2, 1, 2, 1, 2}, 2);
  pairs.negatives_present =
      at::tensor({1, 1, 1, 0, 0, 0, 1, 0, 1, 0, 1, 0, 1, 1, 1}).view({kNegativePairs, kNegativesEach}).to(at::kBool);
  pairs.negatives = leaf(at::randn({kNegativePairs, kNegativesEach, 5}, at::kDouble)
                             .masked_fill(pairs.negatives_present.logical_not().unsqueeze(2), std::nan("")));
  return pairs;
}

at::Tensor cosine(const at::Tensor& a, const at::Tensor& b) {
  return (a * b).sum() / (a.square().sum().sqrt() * b.square().sum().sqrt());
}

// Returns whether image i is compared with negative h of pair j.
bool is_compared(const Pairs& pairs, const std::string& mode, std::int64_t i, std::int64_t j, std::int64_t h) {
  return (mode == "all" || i == j) && mode != "none" && pairs.negatives_present[j][h].item<bool>();
}

// Returns the loss of NegCLIP (Yuksekgonul et al. 2023, section 4). An image's loss is -log(right / all): `right` is exp(scale cos) of the
// right text, and `all` is the sum of exp(scale cos) over the batch's texts and the negatives. A text's loss uses only the images of the
// batch.
at::Tensor clip_by_hand(const Pairs& pairs, const std::string& mode, const at::Tensor& scale) {
  at::Tensor loss = at::zeros({}, at::kDouble);
  for (std::int64_t i = 0; i < kNegativePairs; ++i) {
    at::Tensor row = at::zeros({}, at::kDouble), column = at::zeros({}, at::kDouble);
    for (std::int64_t j = 0; j < kNegativePairs; ++j) {
      row = row + (scale * cosine(pairs.image_global[i], pairs.text_global[j])).exp();
      column = column + (scale * cosine(pairs.image_global[j], pairs.text_global[i])).exp();
      for (std::int64_t h = 0; h < kNegativesEach; ++h)
        if (is_compared(pairs, mode, i, j, h))
          row = row + (scale * cosine(pairs.image_global[i], pairs.negatives[j][h])).exp();
    }
    const at::Tensor right = scale * cosine(pairs.image_global[i], pairs.text_global[i]);
    loss = loss + (row.log() - right + column.log() - right) / (2 * kNegativePairs);
  }
  return loss;
}

// Returns the loss of SigLIP (Zhai et al. 2023, eq. 1) with z = -1 for hard negatives.
at::Tensor siglip_by_hand(const Pairs& pairs, const std::string& mode, const at::Tensor& scale,
                          const at::Tensor& bias) {
  at::Tensor loss = at::zeros({}, at::kDouble);
  const auto term = [&](const at::Tensor& image, const at::Tensor& text, double sign) {
    return (1 + (-sign * (scale * cosine(image, text) + bias)).exp()).log();
  };
  for (std::int64_t i = 0; i < kNegativePairs; ++i)
    for (std::int64_t j = 0; j < kNegativePairs; ++j) {
      loss = loss + term(pairs.image_global[i], pairs.text_global[j], i == j ? 1 : -1) / kNegativePairs;
      for (std::int64_t h = 0; h < kNegativesEach; ++h)
        if (is_compared(pairs, mode, i, j, h))
          loss = loss + term(pairs.image_global[i], pairs.negatives[j][h], -1) / kNegativePairs;
    }
  return loss;
}

void expect_same_outcome(const Outcome& ours, const Outcome& theirs) {
  EXPECT_NEAR(ours.loss.item<double>(), theirs.loss.item<double>(), 1e-10);
  for (std::size_t i = 0; i < ours.gradients.size(); ++i)
    EXPECT_TRUE(at::allclose(ours.gradients[i], theirs.gradients[i].nan_to_num(0), 1e-8, 1e-10)) << "gradient " << i;
}

constexpr const char* kChunks[] = {"null", "1", "3", "100"};

TEST(HardNegatives, AreColumnsOfTheImageToTextSoftmax) {
  const Pairs pairs = pairs_with_negatives();
  for (const std::string mode : {"none", "own", "all"})
    for (const std::string chunk : kChunks) {
      SCOPED_TRACE(mode + ", chunk " + chunk);
      const auto clip = make_objective("clip", "{hard_negatives: " + mode + ", chunk: " + chunk + "}");
      const at::Tensor scale = clip->named_parameters()["logit_scale"];
      const at::Tensor reference = clip_by_hand(pairs, mode, scale.exp());
      expect_same_outcome(evaluate(*clip, pairs), differentiate(reference, pairs));
      const auto by_scale = [&](const at::Tensor& loss) { return torch::autograd::grad({loss}, {scale})[0]; };
      EXPECT_NEAR(by_scale(clip->forward(pairs.features(), {}).total).item<double>(),
                  by_scale(clip_by_hand(pairs, mode, scale.exp())).item<double>(), 1e-10);
    }
}

TEST(HardNegatives, AreSeparateTermsOfTheSigmoidLoss) {
  const Pairs pairs = pairs_with_negatives();
  for (const std::string mode : {"none", "own", "all"})
    for (const std::string chunk : kChunks) {
      SCOPED_TRACE(mode + ", chunk " + chunk);
      const auto siglip = make_objective(
          "siglip", "{hard_negatives: " + mode + ", chunk: " + chunk + ", init_logit_scale: 1, init_logit_bias: -1}");
      const auto parameters = siglip->named_parameters();
      const at::Tensor scale = parameters["logit_scale"], bias = parameters["logit_bias"];
      const auto reference = [&] { return siglip_by_hand(pairs, mode, scale.exp(), bias); };
      expect_same_outcome(evaluate(*siglip, pairs), differentiate(reference(), pairs));
      const auto ours = torch::autograd::grad({siglip->forward(pairs.features(), {}).total}, {scale, bias});
      const auto theirs = torch::autograd::grad({reference()}, {scale, bias});
      for (std::size_t i = 0; i < 2; ++i) EXPECT_NEAR(ours[i].item<double>(), theirs[i].item<double>(), 1e-10) << i;
    }
}

TEST(HardNegatives, DoNotChangeTheTextToImageLoss) {
  const Pairs pairs = pairs_with_negatives();
  const auto terms = [&](const std::string& yaml) {
    return make_objective("clip", yaml)->forward(pairs.features(), {}).terms;
  };
  const auto none = terms("{}"), own = terms("{hard_negatives: own}"), all = terms("{hard_negatives: all}");
  EXPECT_EQ(none[1].first, "loss_t2i");
  EXPECT_EQ(none[1].second.item<double>(), own[1].second.item<double>());
  EXPECT_EQ(none[1].second.item<double>(), all[1].second.item<double>());
  EXPECT_LT(none[0].second.item<double>(), own[0].second.item<double>());
  EXPECT_LT(own[0].second.item<double>(), all[0].second.item<double>());
}

TEST(HardNegatives, HaveNoEffectIfAllAreAbsent) {
  Pairs pairs = pairs_with_negatives();
  pairs.negatives_present = at::zeros({kNegativePairs, kNegativesEach}, at::kBool);
  pairs.negatives = leaf(at::full({kNegativePairs, kNegativesEach, 5}, std::nan(""), at::kDouble));
  for (const std::string name : {"clip", "siglip"})
    for (const std::string chunk : {"null", "2"}) {
      const Outcome without = evaluate(*make_objective(name, "{chunk: " + chunk + "}"), pairs);
      for (const std::string mode : {"own", "all"})
        expect_same_outcome(evaluate(*make_objective(name, "{chunk: " + chunk + ", hard_negatives: " + mode + "}"), pairs),
                       without);
    }
}

TEST(HardNegatives, AreNeededOnlyIfTheyCountAndAreOptional) {
  for (const std::string name : {"clip", "siglip"}) {
    EXPECT_FALSE(make_objective(name, "{}")->needs().texts.contains(kNegatives));
    const Needs needs = make_objective(name, "{hard_negatives: own}")->needs();
    EXPECT_TRUE(needs.texts.at(kNegatives).optional);
    EXPECT_FALSE(needs.texts.at("caption").optional);
    const Losses losses = make_objective(name, "{hard_negatives: all}")->forward(pairs_with_negatives().features(), {});
    ASSERT_EQ(losses.statistics.size(), 1U);
    EXPECT_EQ(losses.statistics[0].first, "negatives_per_image");
    EXPECT_FLOAT_EQ(losses.statistics[0].second.item<float>(), 9.0F / 5.0F);
  }
}

TEST(HardNegatives, ErrorNamesNegativesThatDoNotFit) {
  Pairs pairs = pairs_with_negatives();
  pairs.negatives = leaf(at::randn({kNegativePairs, kNegativesEach, 4}, at::kDouble));
  EXPECT_EQ(error_of<c10::Error>([&] { make_objective("clip", "{hard_negatives: own}")->forward(pairs.features(), {}); }),
            "clip: negatives must be floating [B, H, D] with B = 5 and D = 5, got Double [5, 3, 4]");
}

}  // namespace
}  // namespace tessera
