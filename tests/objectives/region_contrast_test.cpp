#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include <gtest/gtest.h>

#include "tests/objectives/pairs.h"
#include "tests/objectives/region_contrast_case.h"
#include "tests/support/gradcheck.h"
#include <tessera/base/error.h>

namespace tessera {
namespace {

using Vector = std::vector<double>;

Vector vector_of(const at::Tensor& row) {
  const at::Tensor values = row.detach().to(at::kDouble).contiguous();
  return {values.data_ptr<double>(), values.data_ptr<double>() + values.numel()};
}

double cosine(const Vector& a, const Vector& b) {
  double product = 0, aa = 0, bb = 0;
  for (std::size_t i = 0; i < a.size(); ++i) product += a[i] * b[i], aa += a[i] * a[i], bb += b[i] * b[i];
  return product / std::sqrt(aa * bb);
}

/// Computes RoIAlign (Mask R-CNN, section 3) of the patches [N, D] with a single bin per box and one sampling point per patch. Shifts
/// the box by half a patch.
Vector pooled(const at::Tensor& tokens, int rows, int columns, const Vector& corners) {
  const double left = corners[0] * columns - 0.5, top = corners[1] * rows - 0.5;
  const double width = (corners[2] - corners[0]) * columns, height = (corners[3] - corners[1]) * rows;
  const int across = static_cast<int>(std::ceil(width)), down = static_cast<int>(std::ceil(height));
  Vector out(static_cast<std::size_t>(tokens.size(1)));
  for (int i = 0; i < down; ++i)
    for (int j = 0; j < across; ++j) {
      const double y = std::clamp(top + (i + 0.5) * height / down, 0.0, rows - 1.0);
      const double x = std::clamp(left + (j + 0.5) * width / across, 0.0, columns - 1.0);
      const int y0 = static_cast<int>(y), x0 = static_cast<int>(x), y1 = std::min(y0 + 1, rows - 1),
                x1 = std::min(x0 + 1, columns - 1);
      for (const auto& [row, column, weight] :
           std::vector<std::tuple<int, int, double>>{{y0, x0, (1 - y + y0) * (1 - x + x0)},
                                                     {y0, x1, (1 - y + y0) * (x - x0)},
                                                     {y1, x0, (y - y0) * (1 - x + x0)},
                                                     {y1, x1, (y - y0) * (x - x0)}}) {
        const Vector cell = vector_of(tokens[row * columns + column]);
        for (std::size_t d = 0; d < out.size(); ++d) out[d] += weight * cell[d] / (down * across);
      }
    }
  return out;
}

struct Region {
  Vector box, phrase, ids;
  std::vector<Vector> negatives;
};

std::vector<Region> regions_of(const RegionCase& c) {
  std::vector<Region> out;
  const std::int64_t each = c.negatives_each();
  const auto side = static_cast<int>(std::lround(std::sqrt(static_cast<double>(c.dense.size(1)))));
  for (std::int64_t b = 0; b < c.box.size(0); ++b)
    for (std::int64_t r = 0; r < c.box.size(1); ++r) {
      if (!c.box[b][r].item<bool>() || !c.phrase[b][r].item<bool>()) continue;
      Region region{pooled(c.dense[b], side, side, vector_of(c.corners[b][r])),
                    vector_of(c.phrases[b][r]),
                    vector_of(c.ids[b][r]),
                    {}};
      for (std::int64_t h = r * each; h < (r + 1) * each; ++h)
        if (c.negative[b][h].item<bool>()) region.negatives.push_back(vector_of(c.negatives[b][h]));
      out.push_back(region);
    }
  return out;
}

/// The loss terms, computed box by box with the formulas of region_contrast.cpp.
struct Reference {
  std::map<std::string, double> terms;
  double gap = 0;       // mean of s(box, its phrase) - s(box, negative) over all negatives
  double accuracy = 0;  // share of boxes that are nearer to their phrase than to each of their negatives; only boxes with negatives count
};

Reference reference(const RegionCase& c, double scale, double margin, std::size_t text_negatives = 10,
                    double threshold = 0.95) {
  const std::vector<Region> regions = regions_of(c);
  const auto s = [&](const Vector& a, const Vector& b) { return scale * cosine(a, b); };
  double region = 0, hard = 0, rank = 0, text = 0, gap = 0, right = 0;
  int with_negatives = 0, pairs = 0, with_texts = 0;
  for (std::size_t i = 0; i < regions.size(); ++i) {
    const Region& own = regions[i];
    const double match = s(own.box, own.phrase);
    double row = 0, column = 0, choices = 1;
    Vector similar;
    bool beats_all = true;
    for (std::size_t j = 0; j < regions.size(); ++j) {
      if (j != i && regions[j].ids == own.ids) continue;
      row += std::exp(s(own.box, regions[j].phrase) - match);
      column += std::exp(s(regions[j].box, own.phrase) - match);
      const double between = cosine(own.phrase, regions[j].phrase);
      if (j != i && between <= threshold) similar.push_back(between);
    }
    region += (std::log(row) + std::log(column)) / 2;
    for (const Vector& negative : own.negatives) {
      const double distance = match - s(own.box, negative);
      choices += std::exp(-distance);
      rank += std::max(0.0, margin - distance);
      gap += distance;
      beats_all = beats_all && distance > 0;
      ++pairs;
    }
    if (!own.negatives.empty()) hard += std::log(choices), right += beats_all ? 1 : 0, ++with_negatives;
    std::sort(similar.rbegin(), similar.rend());
    similar.resize(std::min(similar.size(), text_negatives));
    double sum = 0;
    for (const double each : similar) sum += std::exp(each);
    if (!similar.empty()) text += std::log(sum), ++with_texts;
  }
  return {{{"loss_region", region / static_cast<double>(regions.size())},
           {"loss_hard", hard / with_negatives},
           {"loss_rank", rank / pairs},
           {"loss_text", text / with_texts}},
          gap / pairs,
          right / with_negatives};
}

std::shared_ptr<Objective> region_contrast(const std::string& more = "", at::ScalarType type = at::kDouble) {
  return make_objective("region_contrast", "{hard_weight: 0.5, rank_weight: 0.25, text_weight: 2" + more + "}", 4,
                        type);
}

double scale_of(Objective& objective) {
  return std::exp(objective.named_parameters()["logit_scale"].item<double>());
}

double statistic(const Losses& losses, const std::string& name) {
  return tensor_of(losses.statistics, name).item<double>();
}

TEST(RegionContrast, TermsMatchTheFormulas) {
  const RegionCase c = region_case();
  for (const std::int64_t negatives : {1, 2, 10}) {
    const auto objective = region_contrast(", rank_margin: 2.5, text_negatives: " + std::to_string(negatives));
    const Losses losses = objective->forward(c.features(), {});
    const Reference expected = reference(c, scale_of(*objective), 2.5, static_cast<std::size_t>(negatives));
    const auto terms = terms_of(losses);
    ASSERT_EQ(terms.size(), expected.terms.size());
    for (const auto& [name, value] : expected.terms) {
      EXPECT_NEAR(terms.at(name), value, 1e-9) << name;
      EXPECT_GT(value, 0) << name;
    }
    EXPECT_NEAR(losses.total.item<double>(),
                terms.at("loss_region") + 0.5 * terms.at("loss_hard") + 0.25 * terms.at("loss_rank") +
                    2 * terms.at("loss_text"),
                1e-9);
    EXPECT_NEAR(statistic(losses, "hard_accuracy"), expected.accuracy, 1e-12);
    EXPECT_NEAR(expected.accuracy, 0.75, 1e-12);
  }
}

TEST(RegionContrast, DoesNotPushNearlyEqualPhrasesApart) {
  const RegionCase c = region_case();
  ASSERT_GT(cosine(vector_of(c.phrases[0][2]), vector_of(c.phrases[3][0])), 0.95);
  for (const char* threshold : {"0.95", "1", "0.7"}) {
    const auto objective = region_contrast(std::string(", text_threshold: ") + threshold);
    EXPECT_NEAR(terms_of(objective->forward(c.features(), {})).at("loss_text"),
                reference(c, 1, 0, 10, std::stod(threshold)).terms.at("loss_text"), 1e-9)
        << threshold;
  }
}

TEST(RegionContrast, EqualPhrasesAreNotNegativesForAnyPadding) {
  RegionCase c = region_case();
  const auto objective = region_contrast();
  const double masked = terms_of(objective->forward(c.features(), {})).at("loss_region");
  Features longer = c.features();
  TowerInput& input = longer.texts["phrases"].input;
  input.mask = at::cat({input.mask, at::zeros({4, 3, 2}, at::kBool)}, 2);
  input.ids = at::cat({input.ids, at::arange(24).view({4, 3, 2})}, 2);
  EXPECT_EQ(terms_of(objective->forward(longer, {})).at("loss_region"), masked);
  // Reverses the words of one of two equal phrases, so that these phrases are no longer equal.
  c.ids[2][0].copy_(c.ids[0][1].flip(0));
  EXPECT_GT(terms_of(objective->forward(c.features(), {})).at("loss_region"), masked);
}

TEST(RegionContrast, GradientsMatchFiniteDifferences) {
  const RegionCase c = region_case();
  const auto objective = region_contrast(", rank_margin: 2.5, text_negatives: 2");
  std::vector<at::Tensor> leaves = c.leaves();
  leaves.push_back(objective->named_parameters()["logit_scale"]);
  expect_gradients_match(leaves, [&] { return objective->forward(c.features(), {}).total; });
}

TEST(RegionContrast, ChunkChangesNothing) {
  const RegionCase c = region_case();
  expect_chunks_change_nothing({1, 5, 100}, [&](const std::string& chunk) {
    const auto objective = region_contrast(", rank_margin: 2.5, text_negatives: 2, " + chunk);
    std::vector<at::Tensor> leaves = c.leaves();
    leaves.push_back(objective->named_parameters()["logit_scale"]);
    return loss_and_gradients(objective->forward(c.features(), {.training = false}).total, leaves);
  });
}

TEST(RegionContrast, AbsentBoxesAndTextsHaveNoEffect) {
  const RegionCase clean = region_case();
  RegionCase spoiled = region_case();
  const at::Tensor box = clean.box.logical_and(clean.phrase);
  const at::Tensor negative = clean.negative.logical_and(box.repeat_interleave(2, 1));
  const auto spoil = [](at::Tensor& values, const at::Tensor& present) {
    at::Tensor mask = present.logical_not();
    while (mask.dim() < values.dim()) mask = mask.unsqueeze(-1);
    values = values.detach().masked_fill(mask, std::nan("")).requires_grad_(values.requires_grad());
  };
  spoil(spoiled.corners, box);
  spoil(spoiled.phrases, box);
  spoil(spoiled.negatives, negative);
  spoil(spoiled.dense, box.any(1));
  const auto objective = region_contrast();
  const at::Tensor right = objective->forward(clean.features(), {.training = false}).total,
                   ours = objective->forward(spoiled.features(), {.training = false}).total;
  EXPECT_EQ(ours.item<double>(), right.item<double>());
  const auto gradients = torch::autograd::grad({ours}, spoiled.leaves()),
             expected = torch::autograd::grad({right}, clean.leaves());
  for (std::size_t i = 0; i < gradients.size(); ++i) EXPECT_TRUE(at::equal(gradients[i], expected[i])) << i;
  EXPECT_EQ(gradients[0][1].abs().sum().item<double>(), 0);
}

TEST(RegionContrast, LossAndGradientWithoutBoxesAreZero) {
  RegionCase none = region_case();
  none.box.fill_(false);
  for (const char* chunk : {"", ", chunk: 2"}) {
    const Losses losses = region_contrast(chunk)->forward(none.features(), {});
    for (const auto& [name, value] : losses.terms) EXPECT_EQ(value.item<double>(), 0) << name;
    EXPECT_EQ(statistic(losses, "rank_margin"), 0);
    for (const at::Tensor& gradient : torch::autograd::grad({losses.total}, none.leaves()))
      EXPECT_TRUE(at::equal(gradient, at::zeros_like(gradient)));
  }
}

TEST(RegionContrast, MarginIsTheGapOfThePreviousStep) {
  const RegionCase c = region_case();
  const auto objective = region_contrast(", rank_margin_bound: 100");
  const double scale = scale_of(*objective);
  const Reference first = reference(c, scale, 0);
  const Losses at_first = objective->forward(c.features(), {});
  EXPECT_NEAR(terms_of(at_first).at("loss_rank"), first.terms.at("loss_rank"), 1e-9);
  const double gap = std::max(0.0, first.gap);
  EXPECT_NEAR(statistic(at_first, "rank_margin"), gap, 1e-9);

  const double then = reference(c, scale, gap).terms.at("loss_rank");
  EXPECT_NEAR(terms_of(objective->forward(c.features(), {.training = false})).at("loss_rank"), then, 1e-9);
  RegionCase without = c;
  without.negative = at::zeros_like(c.negative);
  const Losses unmoved = objective->forward(without.features(), {});
  EXPECT_EQ(terms_of(unmoved).at("loss_rank"), 0);
  EXPECT_NEAR(statistic(unmoved, "rank_margin"), gap, 1e-9);
}

// Each phrase has its box's embedding, and each negative has the opposite embedding, so the mean gap is twice the scale.
TEST(RegionContrast, MarginStaysWithinItsBounds) {
  RegionCase c = region_case();
  const at::NoGradGuard no_grad;
  const auto regions = regions_of(c);
  const at::Tensor box = at::tensor(regions[0].box, at::kDouble);
  c.dense.copy_(box.expand_as(c.dense));
  c.phrases.copy_(box.expand_as(c.phrases));
  c.negatives.copy_(-box.expand_as(c.negatives));
  EXPECT_EQ(statistic(region_contrast()->forward(c.features(), {}), "rank_margin"), 10);
  c.phrases.neg_();
  c.negatives.neg_();
  EXPECT_EQ(statistic(region_contrast()->forward(c.features(), {}), "rank_margin"), 0);
}

TEST(RegionContrast, ImagesMayHaveTheirOwnGrids) {
  const RegionCase square = region_case();
  RegionCase c = square;
  // Images 0 and 2 have 8 patches (2 x 4 and 4 x 2). The other images have 9 patches, so the ninth position of images 0 and 2 is padding.
  c.dense = square.dense.detach().clone();
  c.dense[0][8].fill_(std::nan(""));
  c.dense[2][8].fill_(std::nan(""));
  c.dense.requires_grad_(true);
  c.grids = at::tensor(std::vector<std::int64_t>{2, 4, 3, 3, 4, 2, 3, 3}).view({4, 2});
  const auto objective = region_contrast(", rank_margin: 1");
  const Losses losses = objective->forward(c.features(), {});
  // An image's part of loss_hard depends only on the image's own box embeddings and their negatives, so it can be computed separately.
  const auto alone = [&](std::int64_t image, const std::string& rows) {
    RegionCase one = c.part(image, 1);
    one.dense = one.dense.detach().narrow(1, 0, rows.empty() ? 9 : 8).clone().requires_grad_(true);
    const Losses own = region_contrast(", rank_margin: 1" + rows)->forward(one.features(), {});
    return terms_of(own).at("loss_hard") *
           at::any(one.negative.view({3, 2}).logical_and(one.box.logical_and(one.phrase).t()), 1).sum().item<double>();
  };
  const double sum = alone(0, ", grid_rows: 2") + alone(2, ", grid_rows: 4") + alone(3, "");
  EXPECT_NEAR(terms_of(losses).at("loss_hard"), sum / 4, 1e-9);
  const at::Tensor gradient = torch::autograd::grad({losses.total}, {c.dense})[0];
  EXPECT_TRUE(at::isfinite(gradient).all().item<bool>());
}

TEST(RegionContrast, ErrorsNameWhatDoesNotFit) {
  const auto objective = region_contrast();
  const auto problem = [&](const auto& change) {
    Features features = region_case().features();
    change(features);
    return message_of([&] { objective->forward(features, {}); });
  };
  EXPECT_EQ(problem([](Features& f) { f.images["image"].dense = f.images["image"].dense.narrow(1, 0, 8); }),
            "objective region_contrast: 8 patches of an image do not form a square: set its grid_rows to the image's "
            "height over the "
            "patch size");
  EXPECT_EQ(problem([](Features& f) { f.images["image"].boxes = {}; }),
            "region_contrast: boxes must be [B, R, 4] with B = 4 and R = 3, at least 1, as many as phrases");
  EXPECT_EQ(problem([](Features& f) {
              f.texts["phrases"].global = at::zeros({4, 3, 5});
            }),
            "region_contrast: the embeddings of phrases must be [B, n, D] with B = 4 and D = 4, got [4, 3, 5]");
  EXPECT_EQ(problem([](Features& f) {
              f.texts["phrase_negatives"].global = at::zeros({4, 5, 4});
              f.texts["phrase_negatives"].present = at::zeros({4, 5}, at::kBool);
            }),
            "region_contrast: phrase_negatives must hold the same number of texts for each of the 3 boxes, got 5 in total");
  EXPECT_TRUE(problem([](Features& f) {
                f.images["image"].dense = at::Tensor();
              }).starts_with("objective region_contrast needs image_dense"));
  EXPECT_THROW(make_objective("region_contrast", "{region_weight: 0}", 4), UserError);
}

TEST(RegionContrast, NeedsNegativesOnlyIfATermUsesThem) {
  const auto wants_negatives = [](const std::string& yaml) {
    return make_objective("region_contrast", yaml, 4)->needs().texts.contains("phrase_negatives");
  };
  EXPECT_FALSE(wants_negatives("{text_weight: 1}"));
  EXPECT_TRUE(wants_negatives("{hard_weight: 1}"));
  EXPECT_TRUE(wants_negatives("{rank_weight: 1}"));
  const Needs needs = make_objective("region_contrast", "{}", 4)->needs();
  EXPECT_TRUE(needs.images.at("image").dense && needs.images.at("image").boxes && needs.texts.at("phrases").optional);
}

}  // namespace
}  // namespace tessera
