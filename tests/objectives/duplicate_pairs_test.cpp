// Tests the setting mask_duplicates. With it, pairs that share an image or a caption are not negatives of each other.
#include "tests/objectives/pairs.h"

namespace tessera {
namespace {

constexpr std::int64_t kPairs = 7;

Pairs pairs_with(at::IntArrayRef images, at::IntArrayRef texts) {
  Pairs pairs = random_pairs({3, 1, 2, 2, 3, 2, 1}, 3);
  pairs.image_group = at::tensor(images, at::kLong);
  pairs.caption_group = at::tensor(texts, at::kLong);
  return pairs;
}

// Returns pairs. Pairs 0, 3 and 6 share an image, and pairs 1 and 2 share a caption. Pair 4's caption id equals pair 0's image id, which
// must not count as sharing.
Pairs some_shared() {
  return pairs_with({9, 1, 2, 9, 4, 5, 9}, {10, 11, 11, 13, 9, 15, 16});
}

at::Tensor cosines(const Pairs& pairs) {
  const auto unit = [](const at::Tensor& x) { return x / x.norm(2, -1, true); };
  return at::matmul(unit(pairs.image_global), unit(pairs.text_global).t());
}

// Returns a matrix whose entry (i, j) is 0 if i and j are different pairs that share an image or caption, else 1.
at::Tensor counted(const Pairs& pairs) {
  at::Tensor out = at::ones({kPairs, kPairs}, at::kDouble);
  for (std::int64_t i = 0; i < kPairs; ++i)
    for (std::int64_t j = 0; j < kPairs; ++j) {
      const auto same = [&](const at::Tensor& ids) {
        return ids[i].item<std::int64_t>() == ids[j].item<std::int64_t>();
      };
      if (i != j && (same(pairs.image_group) || same(pairs.caption_group))) out[i][j] = 0;
    }
  return out;
}

void expect_outcome(const Outcome& ours, const Outcome& theirs) {
  EXPECT_NEAR(ours.loss.item<double>(), theirs.loss.item<double>(), 1e-9);
  for (std::size_t i = 0; i < ours.gradients.size(); ++i)
    EXPECT_TRUE(at::allclose(ours.gradients[i], theirs.gradients[i], 1e-8, 1e-10)) << "gradient " << i;
}

TEST(DuplicatePairs, AreMaskedInSoftmaxes) {
  const Pairs pairs = some_shared();
  const at::Tensor weights = counted(pairs);
  EXPECT_EQ(weights.sum().item<double>(), kPairs * kPairs - 8);
  for (const char* yaml : {"{mask_duplicates: true}", "{mask_duplicates: true, chunk: 2}"}) {
    SCOPED_TRACE(yaml);
    const auto clip = make_objective("clip", yaml);
    const at::Tensor scale = clip->named_parameters()["logit_scale"].detach().exp();
    const at::Tensor powers = (cosines(pairs) * scale).exp();
    const at::Tensor rows = powers.diagonal() / (powers * weights).sum(1);
    const at::Tensor columns = powers.diagonal() / (powers * weights).sum(0);
    expect_outcome(evaluate(*clip, pairs), differentiate(-(rows.log().mean() + columns.log().mean()) / 2, pairs));
  }
}

TEST(DuplicatePairs, AreMaskedInSigmoids) {
  const Pairs pairs = some_shared();
  for (const char* yaml : {"{mask_duplicates: true}", "{mask_duplicates: true, chunk: 3}"}) {
    SCOPED_TRACE(yaml);
    const auto siglip = make_objective("siglip", yaml);
    const auto parameters = siglip->named_parameters();
    const at::Tensor logits =
        cosines(pairs) * parameters["logit_scale"].detach().exp() + parameters["logit_bias"].detach();
    const at::Tensor sign = 2 * at::eye(kPairs, at::kDouble) - 1;
    const at::Tensor loss = -(at::log_sigmoid(sign * logits) * counted(pairs)).sum() / kPairs;
    expect_outcome(evaluate(*siglip, pairs), differentiate(loss, pairs));
  }
}

// In losses on token similarities, pairs that share an image or caption are not each other's negatives.
TEST(DuplicatePairs, AreMaskedInTokenSimilarities) {
  const Pairs pairs = some_shared();
  const at::Tensor weights = counted(pairs);
  for (const char* name : {"filip", "pacl", "gloria"}) {
    SCOPED_TRACE(name);
    const std::string more = std::string(name) == "gloria" ? ", global_weight: 0" : "";
    const auto objective = make_objective(name, "{mask_duplicates: true" + more + "}");
    const Losses losses = objective->forward(pairs.features(), {.inspect = true});
    std::map<std::string, at::Tensor> details(losses.details.begin(), losses.details.end());
    const bool both = details.contains("similarity");
    const at::Tensor scale = objective->named_parameters()["logit_scale"].detach().exp();
    const at::Tensor a = (details.at(both ? "similarity" : "similarity_i2t") * scale).exp();
    const at::Tensor b = (details.at(both ? "similarity" : "similarity_t2i") * scale).exp();
    const at::Tensor loss =
        -((a.diagonal() / (a * weights).sum(1)).log() + (b.diagonal() / (b * weights).sum(0)).log()).mean() / 2;
    EXPECT_NEAR(losses.total.item<double>(), loss.item<double>(), 1e-9);
  }
}

TEST(DuplicatePairs, BatchOfOneImageHasNoNegatives) {
  const Pairs pairs = pairs_with({5, 5, 5, 5, 5, 5, 5}, {0, 1, 2, 3, 4, 5, 6});
  for (const char* name : {"clip", "filip", "pacl", "gloria"})
    for (const char* chunk : {"", ", chunk: 2"}) {
      SCOPED_TRACE(std::string(name) + chunk);
      const Outcome outcome = evaluate(*make_objective(name, std::string("{mask_duplicates: true") + chunk + "}"), pairs);
      EXPECT_NEAR(outcome.loss.item<double>(), 0, 1e-14);  // not exactly 0, because tiles and matrix products round differently
      for (const at::Tensor& gradient : outcome.gradients) EXPECT_LT(gradient.abs().max().item<double>(), 1e-14);
    }
  const Losses siglip = make_objective("siglip", "{mask_duplicates: true}")->forward(pairs.features(), {});
  EXPECT_EQ(siglip.terms[1].second.item<double>(), 0);
}

TEST(DuplicatePairs, CountIfTheSettingIsOffOrThereAreNoIds) {
  Pairs pairs = some_shared();
  for (const ObjectiveCase& each : all_objectives()) {
    if (each.label.find("shared") == std::string::npos) continue;
    SCOPED_TRACE(each.label);
    const auto on = make_objective(each.name, each.yaml);
    std::string yaml = each.yaml;
    yaml.replace(yaml.find("true"), 4, "false");
    const auto off = make_objective(each.name, yaml);
    EXPECT_TRUE(on->needs().duplicates);
    EXPECT_FALSE(off->needs().duplicates);
    Pairs without = pairs, different = pairs;
    without.image_group = without.caption_group = at::Tensor();
    different.image_group = different.caption_group = at::arange(kPairs);
    const double plain = evaluate(*off, without).loss.item<double>();
    EXPECT_DOUBLE_EQ(evaluate(*off, pairs).loss.item<double>(), plain);
    EXPECT_DOUBLE_EQ(evaluate(*on, without).loss.item<double>(), plain);
    EXPECT_DOUBLE_EQ(evaluate(*on, different).loss.item<double>(), plain);
    EXPECT_LT(evaluate(*on, pairs).loss.item<double>(), plain);
  }
  EXPECT_TRUE(
      make_objective("weighted_sum", "{objectives: [{name: pacl}, {name: clip, settings: {mask_duplicates: true}}]}")
          ->needs()
          .duplicates);
}

TEST(DuplicatePairs, ErrorNamesWrongIds) {
  Pairs pairs = some_shared();
  pairs.caption_group = at::arange(3);
  EXPECT_EQ(error_of<c10::Error>([&] { make_objective("clip", "{mask_duplicates: true}")->forward(pairs.features(), {}); }),
            "clip: caption_group must be [B] = [7] int64, got [3] Long");
}

}  // namespace
}  // namespace tessera
