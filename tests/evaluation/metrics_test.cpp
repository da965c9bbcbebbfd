#include <functional>
#include <limits>
#include <numeric>
#include <set>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "src/evaluation/metrics/sparse.h"
#include "src/evaluation/metrics/captions.h"
#include "src/evaluation/metrics/probes.h"
#include "src/evaluation/metrics/pairs.h"
#include "src/evaluation/metrics/retrieval.h"
#include "src/evaluation/metrics/segmentation.h"
#include "src/evaluation/metrics/localization.h"
#include "src/evaluation/metrics/zero_shot.h"
#include "tests/reference/whole_metrics.h"
#include <tessera/base/random.h>

namespace tessera::metrics {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

at::Tensor rows(const std::vector<std::vector<double>>& values) {
  std::vector<at::Tensor> out;
  for (const auto& row : values) out.push_back(at::tensor(row, at::kDouble));
  return at::stack(out);
}
at::Tensor ids(const std::vector<std::int64_t>& values) {
  return at::tensor(values, at::kLong);
}
std::vector<std::int64_t> list(const at::Tensor& t) {
  const at::Tensor flat = t.to(at::kLong).contiguous();
  return {flat.const_data_ptr<std::int64_t>(), flat.const_data_ptr<std::int64_t>() + flat.numel()};
}
using Ids = std::vector<std::int64_t>;

TEST(ZeroShotClassification, LeavesOutImagesWithoutALabelAndClassesWithoutImages) {
  const auto s =
      zero_shot_classification(rows({{1, 0}, {0, 1}}), ids({0, -1}), rows({{1, 0}, {0, 1}}), ids({0, 1}), 2, {1});
  EXPECT_DOUBLE_EQ(s.topk[0], 1.0);
  EXPECT_DOUBLE_EQ(s.per_class[1].item<double>(), -1);
  EXPECT_DOUBLE_EQ(s.mean_per_class, 1.0);
}

// Classes 0, 1, 3 occur. 0: TP 1, FP 1, FN 1; 1: TP 1, FP 0, FN 1; 3: TP 0. Class 2 is predicted once and adds no term.
TEST(ZeroShotClassification, MacroF1IsTheMeanOverTheClassesOfTheTruth) {
  const at::Tensor labels = at::tensor({0, 0, 1, 1, 3}, at::kLong), prediction = at::tensor({0, 2, 1, 0, 1}, at::kLong);
  EXPECT_NEAR(metrics::macro_f1(prediction, labels, 5), (2. / 4 + 2. / 4 + 0) / 3, 1e-15);
  EXPECT_EQ(metrics::macro_f1(labels, labels, 5), 1);
}

TEST(ZeroShotClassification, TheWorstGroupHasImages) {
  const auto shares = metrics::group_shares(at::tensor({1, 0, 1, 0, 0, 1}), at::tensor({0, 0, 0, 3, 4, 4}, at::kLong));
  EXPECT_EQ(shares.count.size(0), 5);
  EXPECT_NEAR(shares.share[0].item<double>(), 2. / 3, 1e-15);
  EXPECT_EQ(shares.share[3].item<double>(), 0);
  EXPECT_EQ(shares.share[4].item<double>(), 0.5);
  EXPECT_EQ(shares.count[1].item<std::int64_t>(), 0);
  EXPECT_EQ(shares.worst, 3);
  EXPECT_EQ(metrics::group_shares(at::tensor({0, 1, 0}), at::tensor({2, 1, 1}, at::kLong)).worst, 2);
  EXPECT_EQ(metrics::group_shares(at::tensor({1, 1}), at::tensor({4, 1}, at::kLong)).worst, 1) << "the lowest of equal groups";
}

TEST(ZeroShotClassification, NanFeaturesAreNeverRight) {
  const auto s = zero_shot_classification(rows({{kNan, 0}}), ids({0}), rows({{1, 0}, {0, 1}}), ids({0, 1}), 2, {1, 2});
  EXPECT_DOUBLE_EQ(s.topk[0], 0.0);
  EXPECT_DOUBLE_EQ(s.topk[1], 0.0);
}

TEST(RetrievalRecall, RanksByHand) {
  // Image 0 owns texts 0 and 2, image 1 owns text 1, and image 2 owns no text.
  const auto s =
      retrieval_recall(rows({{1, 0}, {0, 1}, {1, 1}}), rows({{0, 1}, {1, 0.1}, {1, 1}}), ids({0, 1, 0}), {1, 2});
  EXPECT_EQ(list(s.image_to_text_rank), (Ids{1, 2, -1}));
  EXPECT_EQ(list(s.text_to_image_rank), (Ids{2, 2, 1}));
  EXPECT_DOUBLE_EQ(s.image_to_text[0], 0.0);
  EXPECT_DOUBLE_EQ(s.image_to_text[1], 0.5);
  EXPECT_DOUBLE_EQ(s.text_to_image[1], 1.0 / 3);
}

TEST(RetrievalRecall, BrokenFeaturesAreMissesNotHits) {
  const auto s = retrieval_recall(at::full({3, 2}, kNan), at::full({3, 2}, kNan), ids({0, 1, 2}), {1});
  EXPECT_DOUBLE_EQ(s.image_to_text[0], 0.0);
  EXPECT_DOUBLE_EQ(s.text_to_image[0], 0.0);
}

/// Computes all cosines in double. Returns the ranks of the N images and of the M texts, found by counting the candidates that come
/// before the best right one.
std::pair<Ids, Ids> counted_ranks(const at::Tensor& images, const at::Tensor& texts, const at::Tensor& owner) {
  const auto unit = [](const at::Tensor& rows) { return rows.to(at::kDouble) / rows.to(at::kDouble).norm(2, 1, true); };
  const at::Tensor x = unit(images), y = unit(texts);
  std::vector<at::Tensor> rows;
  for (std::int64_t i = 0; i < x.size(0); ++i) rows.push_back((x[i] * y).sum(1));
  const at::Tensor cosines = at::stack(rows);
  const auto ranks = [](const at::Tensor& scores, const at::Tensor& right) {
    const at::Tensor best = at::where(right, scores, -2.0).amax(1, true);
    const at::Tensor first = right.logical_and(scores.eq(best)).to(at::kInt).argmax(1, true);
    const at::Tensor index = at::arange(scores.size(1), at::kLong).unsqueeze(0);
    const at::Tensor before = scores.gt(best).logical_or(scores.eq(best).logical_and(index.lt(first))).sum(1);
    return list(at::where(right.any(1), before, -1));
  };
  const at::Tensor right = owner.unsqueeze(0).eq(at::arange(x.size(0), at::kLong).unsqueeze(1));
  return {ranks(cosines, right), ranks(cosines.t().contiguous(), right.t().contiguous())};
}

void expect_counted_ranks(const at::Tensor& images, const at::Tensor& texts, const at::Tensor& owner) {
  const auto scores = retrieval_recall(images, texts, owner);
  const auto [image, text] = counted_ranks(images, texts, owner);
  EXPECT_EQ(list(scores.image_to_text_rank), image);
  EXPECT_EQ(list(scores.text_to_image_rank), text);
}

TEST(RetrievalRecall, CountsTheCandidatesThatScoreHigher) {
  at::manual_seed(1);
  expect_counted_ranks(at::randn({20, 6}, at::kDouble), at::randn({50, 6}, at::kDouble), at::randint(-1, 18, {50}, at::kLong));
  // retrieval_recall() compares up to 1,024 images with 4,096 texts at a time (a tile), so this case needs several tiles.
  expect_counted_ranks(at::randn({1050, 4}), at::randn({4200, 4}), at::arange(4200, at::kLong).remainder(1055) - 5);
}

TEST(RetrievalRecall, ResolvesNearTiesInDouble) {
  // The embeddings are almost equal, so float32 cannot resolve the differences of their cosines.
  at::manual_seed(3);
  const at::Tensor base = at::randn({1, 24}, at::kDouble);
  at::Tensor images = (base + 1e-4 * at::randn({60, 24}, at::kDouble)), texts = base + 1e-4 * at::randn({150, 24}, at::kDouble);
  images.slice(0, 10, 20).copy_(images.slice(0, 0, 10));
  texts.slice(0, 50, 90).copy_(texts.slice(0, 0, 40));
  const at::Tensor owner = at::arange(150, at::kLong).remainder(60);
  for (const auto type : {at::kDouble, at::kFloat}) expect_counted_ranks(images.to(type), texts.to(type), owner);
}

TEST(RetrievalRecall, CosinesMatchTheGeneralSimilarity) {
  at::manual_seed(4);
  const at::Tensor images = at::randn({40, 16}), texts = at::randn({130, 16});
  const at::Tensor owner = at::randint(-1, 40, {130}, at::kLong);
  const auto unit = [](const at::Tensor& rows) { return rows.to(at::kDouble) / rows.to(at::kDouble).norm(2, 1, true); };
  const auto tiles = retrieval_recall(
      [&](RowRange i, RowRange t) { return unit(images.slice(0, i.begin, i.end)).matmul(unit(texts.slice(0, t.begin, t.end)).t()); }, 40,
      owner);
  const auto cosines = retrieval_recall(images, texts, owner);
  EXPECT_EQ(list(cosines.image_to_text_rank), list(tiles.image_to_text_rank));
  EXPECT_EQ(list(cosines.text_to_image_rank), list(tiles.text_to_image_rank));
  EXPECT_EQ(cosines.image_to_text, tiles.image_to_text);
}

TEST(RetrievalRecall, ParallelTextsTieIfTheirLengthsAreExact) {
  EXPECT_EQ(list(retrieval_recall(rows({{1}, {1}}), rows({{49}, {1}}), ids({0, 1}), {1}).image_to_text_rank), (Ids{0, 1}));
  at::manual_seed(4);
  const at::Tensor images = at::randn({8, 3});
  const at::Tensor texts = rows({{3, 4, 0}, {0, 3, 4}, {4, 0, 3}, {1, 2, 2}, {2, 1, -2}, {2, 3, 6}, {-6, 2, 3}, {1, 0, 0}}).to(at::kFloat);
  for (int factor = 2; factor < 60; ++factor) {
    const at::Tensor owner = ids({-1, -1, -1, -1, -1, -1, -1, -1, 0, 1, 2, 3, 4, 5, 6, 7});
    const at::Tensor ranks = retrieval_recall(images, at::cat({texts, texts * factor}), owner, {1}).image_to_text_rank;
    // Texts i and i + 8 have parallel embeddings and therefore equal scores. Text i comes first because its index is lower. The correct
    // text of image i is text i + 8. The texts with higher scores also come in such pairs, so their number is even. With text i, an odd
    // number of texts come before the correct text. This number is the correct text's rank.
    EXPECT_TRUE(ranks.remainder(2).eq(1).all().item<bool>()) << factor << ": " << ranks;
  }
}

/// Calls `body` for many widths and counts. `doubled` holds `rows` random rows, followed by the same rows again.
void for_doubled_rows(const std::function<void(const at::Tensor& queries, const at::Tensor& doubled, std::int64_t rows)>& body) {
  at::manual_seed(5);
  for (const std::int64_t count : {1, 2, 3, 5, 7, 12, 33})
    for (const std::int64_t width : {3, 8, 17, 24, 68}) {
      const at::Tensor once = at::randn({count, width});
      body(at::cat({once, at::randn({20, width})}), at::cat({once, once}), count);
    }
}

TEST(NearestByCosine, PrefersTheLowerIndexOfEqualCandidates) {
  for_doubled_rows([](const at::Tensor& queries, const at::Tensor& doubled, std::int64_t rows) {
    const at::Tensor first = nearest_by_cosine(queries, doubled, 1).first;
    EXPECT_TRUE(first.lt(rows).all().item<bool>()) << doubled.sizes();
  });
}

TEST(ZeroShotClassification, PrefersTheFirstOfClassesWithEqualPrompts) {
  for_doubled_rows([](const at::Tensor& queries, const at::Tensor& doubled, std::int64_t rows) {
    const at::Tensor prediction = zero_shot_classification(queries, at::zeros({queries.size(0)}, at::kLong), doubled,
                                                           at::arange(2 * rows), 2 * rows, {1})
                                      .prediction;
    EXPECT_TRUE(prediction.lt(rows).all().item<bool>()) << doubled.sizes();
  });
}

TEST(ZeroShotSegmentation, PrefersTheFirstOfClassesWithEqualNames) {
  for_doubled_rows([](const at::Tensor& queries, const at::Tensor& doubled, std::int64_t rows) {
    SegmentationOptions options;
    options.grid = {1, queries.size(0)};
    options.candidates = "all";
    options.upsample = "nearest";
    const at::Tensor prediction =
        zero_shot_segmentation(queries.unsqueeze(0), doubled, at::zeros({1, 1, queries.size(0)}, at::kLong), options)
            .prediction;
    EXPECT_TRUE(prediction.lt(rows).all().item<bool>()) << doubled.sizes();
  });
}

TEST(NearestByCosine, TopKMatchesAFullSort) {
  at::manual_seed(9);
  // With small whole numbers, many candidates tie exactly, even at the k-th place.
  for (const std::int64_t high : {2, 100}) {
    const at::Tensor queries = at::randint(1, high + 1, {20, 3}, at::kLong).to(at::kDouble);
    const at::Tensor candidates = at::randint(1, high + 1, {200, 3}, at::kLong).to(at::kDouble);
    const auto [few, scores] = nearest_by_cosine(queries, candidates, 5);
    const auto [all, rest] = nearest_by_cosine(queries, candidates, 200);
    EXPECT_TRUE(few.equal(all.narrow(1, 0, 5)));
    EXPECT_TRUE(scores.equal(rest.narrow(1, 0, 5)));
  }
}

TEST(SegmentationScores, CountsByHand) {
  const at::Tensor target = ids({0, 1, 1, 255, 2, 2}).view({1, 2, 3});
  const at::Tensor guess = ids({1, 1, 0, 1, 2, 7}).view({1, 2, 3});
  const auto s = segmentation_scores(guess, target, 3, 0);
  // Three pixels have class 1 in the prediction or the target, and one of them has it in both. Two pixels have class 2 in the prediction or
  // the target, and one of them in both.
  EXPECT_EQ(list(s.intersection), (Ids{0, 1, 1}));
  EXPECT_EQ(list(s.union_), (Ids{2, 3, 2}));
  EXPECT_DOUBLE_EQ(s.image_miou, (1.0 / 3 + 1.0 / 2) / 2);
  EXPECT_DOUBLE_EQ(s.dataset_miou, (1.0 / 3 + 1.0 / 2) / 2);
  EXPECT_DOUBLE_EQ(s.pixel_accuracy, 2.0 / 5);
}

TEST(SegmentationScores, BatchesAddUp) {
  at::manual_seed(3);
  const at::Tensor target = at::randint(0, 5, {6, 7, 8}, at::kLong), guess = at::randint(0, 6, {6, 7, 8}, at::kLong);
  const auto whole = segmentation_scores(guess, target, 5, 0);
  SegmentationMeter meter(5, 0);
  meter.add(guess.narrow(0, 0, 2), target.narrow(0, 0, 2));
  meter.add(guess.narrow(0, 2, 4), target.narrow(0, 2, 4));
  EXPECT_TRUE(meter.scores().image_iou.equal(whole.image_iou));
  EXPECT_DOUBLE_EQ(meter.scores().dataset_miou, whole.dataset_miou);
  EXPECT_DOUBLE_EQ(meter.scores().pixel_accuracy, whole.pixel_accuracy);
}

TEST(ZeroShotSegmentation, NearestUpsamplingTakesTheFloorOfTheSourcePosition) {
  // Two patches side by side cover five columns. Column i belongs to patch floor(i * 2 / 5), so columns 0 to 2 belong to patch 0.
  const auto s = zero_shot_segmentation(
      rows({{1, 0}, {0, 1}}).unsqueeze(0), rows({{1, 0}, {0, 1}}), ids({0, 1, 0, 1, 0}).view({1, 1, 5}),
      {.grid = {1, 2}, .upsample = "nearest", .candidates = "present", .background_index = {}});
  EXPECT_EQ(list(s.prediction), (Ids{0, 0, 0, 1, 1}));
}

TEST(ZeroShotSegmentation, OnlyPresentClassesAreCandidates) {
  const auto s = zero_shot_segmentation(
      rows({{1, 0}}).unsqueeze(0), rows({{1, 0}, {0, 1}, {-1, 0}}), ids({1, 2, 255}).view({1, 1, 3}),
      {.grid = {1, 1}, .upsample = "bilinear", .candidates = "present", .background_index = {}});
  EXPECT_EQ(list(s.prediction), (Ids{1, 1, 1}));
}

TEST(ZeroShotSegmentation, TilesOfManyClassesMatchTheWhole) {
  at::manual_seed(4);
  // The scores of 120 classes at 200 x 200 pixels do not fit into one tile.
  const at::Tensor patches = at::randn({1, 4, 8}), classes = at::randn({120, 8});
  SegmentationOptions options{.grid = {2, 2}, .upsample = "bilinear", .candidates = "all", .background_index = {}};
  const auto s = zero_shot_segmentation(patches, classes, at::zeros({1, 200, 200}, at::kLong), options);
  const at::Tensor maps = at::upsample_bilinear2d(s.patch_similarity, {200, 200}, false);
  EXPECT_TRUE(s.prediction.equal(maps.argmax(1)));
}

TEST(ZeroShotSegmentation, RejectsTargetsThatAreNotClasses) {
  EXPECT_THROW(zero_shot_segmentation(at::randn({1, 4, 8}), at::randn({3, 8}), at::full({1, 4, 4}, 3, at::kLong),
                                      {.grid = {2, 2}}),
               c10::Error);
}

TEST(ZeroShotSegmentationByGroups, EachPixelTakesTheClassOfItsGroup) {
  // Two patches side by side cover five columns, and each patch belongs to one of two groups. The first group is nearest to class 2,
  // the other to class 0.
  const at::Tensor groups = rows({{1, 0.1F}, {0, 1}}).unsqueeze(0);
  const at::Tensor classes = rows({{0, 1}, {-1, 0}, {1, 0}});
  const at::Tensor attention = rows({{0.9F, 0.2F}, {0.1F, 0.8F}}).unsqueeze(0);
  const at::Tensor target = ids({0, 0, 2, 1, 2}).view({1, 1, 5});
  SegmentationOptions options{.grid = {1, 2}, .upsample = "nearest", .candidates = "present", .background_index = {}};
  EXPECT_EQ(list(zero_shot_segmentation_by_groups(groups, attention, classes, target, options)), (Ids{2, 2, 2, 0, 0}));
  // Now only classes 0 and 1 are present. Class 0 is the nearest of the two for both groups.
  EXPECT_EQ(list(zero_shot_segmentation_by_groups(groups, attention, classes, ids({0, 1, 1, 255, 1}).view({1, 1, 5}),
                                                  options)),
            (Ids{0, 0, 0, 0, 0}));
  options.background_index = 2;
  EXPECT_EQ(
      list(zero_shot_segmentation_by_groups(groups, attention, classes, at::full({1, 1, 5}, 2, at::kLong), options)),
      (Ids{255, 255, 255, 255, 255}))
      << "an image of only background has no candidate";
}

TEST(ZeroShotSegmentationByGroups, UpsamplesWeightsBeforeTakingTheGreatest) {
  // Let t grow from 0 to 1 between the centers of the two patches. The groups' weights are 1 - 0.6 t and 0.6 t, which are equal at t = 5/6.
  // If each patch chose its group before the upsampling, the border between the groups would be in the middle.
  const at::Tensor attention = rows({{1, 0.4F}, {0, 0.6F}}).unsqueeze(0);
  SegmentationOptions options{.grid = {1, 2}, .upsample = "bilinear", .candidates = "all", .background_index = {}};
  const at::Tensor masks = group_masks(attention, 1, 12, options);
  const at::Tensor maps = at::upsample_bilinear2d(attention.view({1, 2, 1, 2}).to(at::kDouble), {1, 12}, false);
  EXPECT_TRUE(masks.equal(maps.argmax(1)));
  EXPECT_EQ(masks.eq(0).sum().item<std::int64_t>(), 8);
  EXPECT_TRUE(group_masks(attention.flip(1), 1, 12, options).equal(1 - masks));
  EXPECT_THROW(group_masks(attention, 1, 12, {.grid = {2, 2}}), c10::Error);
}

TEST(LinearProbe, FindsTheStationaryPoint) {
  at::manual_seed(5);
  const at::Tensor x = at::randn({60, 7}, at::kDouble) * 3, y = at::randint(0, 4, {60}, at::kLong);
  for (const double l2 : {1e-4, 0.1, 10.0}) {
    const auto fit = fit_logistic_regression(x, y, 4, l2);
    EXPECT_TRUE(fit.converged);
    // Computes the gradient of the regularized loss from its definition; it must be 0 at the solution.
    const at::Tensor p = (x.matmul(fit.weight.t()) + fit.bias).softmax(1) - at::one_hot(y, 4).to(at::kDouble);
    const at::Tensor gradient = p.t().matmul(x) / 60 + l2 * fit.weight;
    EXPECT_LE(gradient.abs().max().item<double>(), 1e-6);
    EXPECT_LE((p.sum(0) / 60).abs().max().item<double>(), 1e-6);
  }
}

TEST(LinearProbe, ConvergesForOffCenterFeaturesOfUnequalScale) {
  // The features are like real embeddings: they have a large common part, small differences and more columns than rows.
  at::manual_seed(6);
  const at::Tensor scale = at::logspace(-4, 1, 200, 10.0, at::kDouble);
  const at::Tensor x = at::randn({40, 200}, at::kDouble) * scale + 20 * at::randn({200}, at::kDouble);
  const auto fit = fit_logistic_regression(x, at::randint(0, 5, {40}, at::kLong), 5, 0.01);
  EXPECT_TRUE(fit.converged);
  EXPECT_LT(fit.iterations, 500);
}

TEST(LinearProbe, StaysAtASolution) {
  at::manual_seed(7);
  const at::Tensor x = at::randn({50, 6}, at::kDouble) + 3, y = at::randint(0, 3, {50}, at::kLong);
  const auto fit = fit_logistic_regression(x, y, 3, 0.1);
  const auto again = fit_logistic_regression(x, y, 3, 0.1, &fit, 1e-6);
  EXPECT_EQ(again.iterations, 0);
  EXPECT_NEAR(again.objective, fit.objective, 1e-12);
}

TEST(LinearProbe, SeparatesSeparableClasses) {
  const at::Tensor x = rows({{0, 1}, {0, 2}, {1, 0}, {2, 0}}), y = ids({0, 0, 1, 1});
  const auto s = linear_probe_lbfgs(x, y, x * 3, y, 2, 0.0);
  EXPECT_DOUBLE_EQ(s.train_top1, 1.0);
  EXPECT_DOUBLE_EQ(s.test_top1, 1.0);
  EXPECT_LT(s.objective, 1e-4);
}

TEST(HyperparameterSweep, TiesKeepTheFirstOfEachList) {
  const auto s = hyperparameter_sweep(
      20, {0, 10}, [](std::int64_t) { return 0.5; }, 4);
  EXPECT_EQ(s.visited, (Ids{0, 10, 0, 0, 4, 0, 0, 2, 0, 0, 1}));
  EXPECT_EQ(s.best_index, 0);
}

TEST(HyperparameterSweep, MeasuresEachPointOnce) {
  std::map<std::int64_t, int> calls;
  hyperparameter_sweep(97, {0, 48, 96}, [&](std::int64_t i) {
    ++calls[i];
    return -std::abs(i - 50.0);
  });
  for (const auto& [index, count] : calls) EXPECT_EQ(count, 1) << index;
}

TEST(Knn, TinyTemperatureDoesNotOverflow) {
  const auto s = knn_classification(rows({{1, 0}, {0, 1}}), ids({0, 1}), rows({{1, 0}}), ids({0}), 2, 2, 1e-4);
  EXPECT_DOUBLE_EQ(s.probabilities[0][0].item<double>(), 1.0);
}

TEST(PairwiseAccuracy, TiesAndNanAreWrong) {
  const auto s =
      pairwise_accuracy(at::tensor({1.0, 0.5, kNan, 2.0}), at::tensor({0.0, 0.5, 0.0, kNan}), ids({0, 0, 0, 2}), 3);
  EXPECT_DOUBLE_EQ(s.accuracy, 0.25);
  EXPECT_EQ(list(s.category_count), (Ids{3, 0, 1}));
  EXPECT_DOUBLE_EQ(s.category_accuracy[1].item<double>(), -1);
  EXPECT_DOUBLE_EQ(s.mean_category_accuracy, (1.0 / 3 + 0) / 2);
}

TEST(KPrecision, LowercasesOnlyAsciiInWords) {
  EXPECT_EQ(caption_words("A dog's Café, no.2 — ÉTÉ"),
            (std::vector<std::string>{"a", "dog", "s", "café", "no", "2", "—", "ÉtÉ"}));
}

TEST(KPrecision, ClipsCountsToThoseOfTheCaptions) {
  const std::vector<std::string> captions = {"a dog a a", "a dog"};
  const auto scores = at::tensor({0.0, 1.0, 1.0, 0.0}).view({2, 2});  // each image retrieves the other image's caption
  EXPECT_DOUBLE_EQ(k_precision(scores, captions, {0, 1}, {}, false).per_image[1], 1.0);
  EXPECT_DOUBLE_EQ(k_precision(scores, captions, {0, 1}, {}, true).per_image[1], 0.5);
}

TEST(KPrecision, LeavesOutAnImageWithoutWords) {
  const auto s = k_precision(at::ones({1, 1}), {"!!!"}, {0}, std::vector<std::string>{"dog"});
  EXPECT_DOUBLE_EQ(s.per_image[0], -1);
  EXPECT_DOUBLE_EQ(s.k_precision, 0);
}

/// Returns the best total over all assignments of rows to columns.
double best_total(const std::vector<std::vector<double>>& value) {
  const std::size_t rows = value.size(), columns = value.front().size(), size = std::max(rows, columns);
  std::vector<std::size_t> order(size);
  std::iota(order.begin(), order.end(), 0);
  double best = -1e9;
  do {
    double sum = 0;
    for (std::size_t r = 0; r < rows; ++r) sum += order[r] < columns ? value[r][order[r]] : 0;
    best = std::max(best, sum);
  } while (std::next_permutation(order.begin(), order.end()));
  return best;
}

TEST(BestMatching, MatchesExhaustiveSearch) {
  Random random(7, Purpose::step);
  for (int trial = 0; trial < 300; ++trial) {
    const auto rows = static_cast<std::size_t>(1 + random.below(6)),
               columns = static_cast<std::size_t>(1 + random.below(6));
    std::vector<std::vector<double>> value(rows, std::vector<double>(columns));
    for (auto& row : value)
      for (double& v : row) v = static_cast<double>(random.below(8)) / 8;
    const auto pairs = best_matching(value);
    ASSERT_EQ(pairs.size(), std::min(rows, columns));
    double sum = 0;
    std::set<std::int64_t> used;
    for (const auto& [r, c] : pairs) {
      sum += value[static_cast<std::size_t>(r)][static_cast<std::size_t>(c)];
      EXPECT_TRUE(used.insert(c).second);
    }
    EXPECT_DOUBLE_EQ(sum, best_total(value));
  }
}

TEST(TokenGroupIou, IgnoresNanInPadding) {
  at::Tensor weights = at::tensor({0.9, 0.1, kNan, 0.1, 0.9, kNan}).view({1, 2, 3});
  const at::Tensor mask = at::tensor({1, 1, 0}).to(at::kBool).view({1, 3});
  const at::Tensor segments = at::tensor({1, 0, 1, 0, 1, 0}).to(at::kBool).view({1, 2, 3});
  const auto s = token_group_iou(weights, mask, segments);
  EXPECT_EQ(list(s.assignment), (Ids{0, 1, -1}));
  EXPECT_DOUBLE_EQ(mean_of_present(s.per_caption.select(1, 0)), 1.0);
}

TEST(InterpretabilityRanking, TiesAndMissingTokensCountAgainstTheClass) {
  const at::Tensor activations = rows({{0, 3, 3, 1}, {0, 0, 0, 0}, {5, 1, 1, 1}});
  const at::Tensor rank = interpretability_ranking(activations, ids({0, 1, 2}), ids({1, 3, 0, -1, -1, -1}).view({3, 2}));
  EXPECT_EQ(list(rank), (Ids{2, 4, 5}));
  const std::vector<double> shares = recall_at(rank - 1, {2, 4});
  EXPECT_DOUBLE_EQ(shares[0], 1.0 / 3);
  EXPECT_DOUBLE_EQ(shares[1], 2.0 / 3);
}

}  // namespace
}  // namespace tessera::metrics
