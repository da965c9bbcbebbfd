#include <cmath>

#include <gtest/gtest.h>

#include "tests/objectives/pairs.h"
#include "tests/support/gradcheck.h"

namespace tessera {
namespace {

constexpr std::int64_t kSamples = 5, kEmbedWidth = 4;

/// Embeddings of six views of five samples. The second and last samples have no regions, and the third has no objects.
struct Pyramid {
  std::map<std::string, at::Tensor> images, texts;
  at::Tensor has_regions = at::tensor({1, 0, 1, 1, 0}).to(at::kBool);
  at::Tensor has_objects = at::tensor({1, 1, 0, 1, 1}).to(at::kBool);

  Pyramid() {
    at::manual_seed(3);
    for (const char* view : {"global", "local", "roi"})
      images[view] = leaf(at::randn({kSamples, kEmbedWidth}, at::kDouble));
    for (const char* view : {"summary", "caption", "objects"})
      texts[view] = leaf(at::randn({kSamples, kEmbedWidth}, at::kDouble));
  }
  Features features() const {
    Features out;
    for (const auto& [view, embedding] : images) out.images[view].global = embedding;
    for (const auto& [view, embedding] : texts) out.texts[view].global = embedding;
    out.images["roi"].present = has_regions;
    out.texts["objects"].present = has_objects;
    return out;
  }
  std::vector<at::Tensor> leaves() const {
    std::vector<at::Tensor> all;
    for (const auto* views : {&images, &texts})
      for (const auto& [view, embedding] : *views) all.push_back(embedding);
    return all;
  }
};

constexpr const char* kAllPairs =
    "{peer_pairs: [GS, LT, RA], cross_global_pairs: [GA, RS, GT], cross_local_pairs: [LA, RT, LS]}";

std::map<std::string, double> terms_of(Objective& objective, const Features& features) {
  const Losses losses = objective.forward(features, {});
  std::map<std::string, double> terms = terms_of(losses);
  terms["loss"] = losses.total.item<double>();
  return terms;
}

TEST(PyramidClip, GradientsMatchFiniteDifferencesIfSamplesLackViews) {
  const Pyramid pyramid;
  for (const char* chunk : {"", "chunk: 2, "}) {
    const auto objective = make_objective("pyramidclip", std::string(kAllPairs).insert(1, chunk), kEmbedWidth);
    std::vector<at::Tensor> leaves = pyramid.leaves();
    leaves.push_back(objective->named_parameters()["logit_scale"]);
    expect_gradients_match(leaves, [&] { return objective->forward(pyramid.features(), {}).total; });
  }
}

TEST(PyramidClip, LossIsTheWeightedSumOfGroupMeans) {
  const auto terms = terms_of(
      *make_objective("pyramidclip", "{cross_global_weight: 0.5, cross_local_weight: 0.2, cross_local_pairs: []}",
                      kEmbedWidth),
      Pyramid().features());
  EXPECT_NEAR(terms.at("loss_peer"), (terms.at("loss_gs") + terms.at("loss_lt")) / 2, 1e-12);
  EXPECT_NEAR(terms.at("loss_cross_global"), (terms.at("loss_ga") + terms.at("loss_rs")) / 2, 1e-12);
  EXPECT_EQ(terms.at("loss_cross_local"), 0);
  EXPECT_NEAR(terms.at("loss"), 0.3 * terms.at("loss_peer") + 0.5 * terms.at("loss_cross_global"), 1e-12);
}

TEST(PyramidClip, ViewOfFewerThanTwoSamplesAddsNothing) {
  for (const std::int64_t present : {0, 1}) {
    Pyramid pyramid;
    pyramid.has_regions = at::arange(kSamples) < present;
    const auto objective = make_objective("pyramidclip", "{}", kEmbedWidth);
    const Losses losses = objective->forward(pyramid.features(), {});
    for (const auto& [name, value] : losses.terms)
      if (name == "loss_rs" || name == "loss_rt") {
        EXPECT_EQ(value.item<double>(), 0) << name;
      }
    const auto gradients = torch::autograd::grad({losses.total}, pyramid.leaves());
    for (const at::Tensor& gradient : gradients) EXPECT_TRUE(gradient.isfinite().all().item<bool>());
    EXPECT_EQ(gradients[2].abs().sum().item<double>(), 0);  // `roi`
  }
}

TEST(PyramidClip, NeedsOnlyTheViewsOfItsPairs) {
  const Needs all = make_objective("pyramidclip", "{}", kEmbedWidth)->needs();
  EXPECT_EQ(all.images.size(), 3u);
  EXPECT_TRUE(all.images.at("roi").regions && all.images.at("roi").optional);
  EXPECT_FALSE(all.images.at("global").optional || all.images.at("local").regions);
  EXPECT_TRUE(all.texts.at("summary").optional && all.texts.at("objects").optional);
  EXPECT_FALSE(all.texts.at("caption").optional);

  const Needs peer =
      make_objective("pyramidclip", "{peer_pairs: [GS], cross_global_pairs: [], cross_local_pairs: []}", kEmbedWidth)
          ->needs();
  EXPECT_EQ(peer.images, (std::map<std::string, ViewNeeds>{{"global", {}}}));
  EXPECT_EQ(peer.texts, (std::map<std::string, ViewNeeds>{{"summary", {.optional = true}}}));
}

TEST(PyramidClip, RejectsInvalidPairsAndWeights) {
  const auto expect_refused = [](const std::string& yaml, const std::string& part) {
    const std::string error = error_of([&] { make_objective("pyramidclip", yaml, kEmbedWidth); });
    EXPECT_NE(error.find(part), std::string::npos) << error;
  };
  expect_refused("{peer_pairs: [SG]}", "peer_pairs: SG is not a pair of views: write one of G, L, R and one of S, T, A");
  expect_refused("{cross_local_pairs: [LA, LA]}", "cross_local_pairs: LA is listed twice");
  expect_refused("{cross_global_weight: 0.7, cross_local_weight: 0.7}", "add up to more than 1");
  expect_refused("{peer_pairs: [], cross_global_pairs: [], cross_local_pairs: []}", "name at least one");
}

}  // namespace
}  // namespace tessera
