// Tests of `distill` and `affinity`, and of nested widths (`matryoshka`).
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "tests/objectives/pairs.h"
#include "tests/ops/largest_allocation.h"
#include "tests/support/gradcheck.h"
#include <tessera/objectives/contrastive_objective.h>

namespace tessera {
namespace {

constexpr std::int64_t kStudentWidth = 4, kFirstTeacher = 3, kTeachersWidth = 8;
constexpr const char* kTwoTeachers = "teachers: [{width: 3, temperature: 0.2}, {width: 5, temperature: 0.4}]";

/// Random embeddings of images with K captions each, from a student and from teachers.
struct TaughtCase {
  at::Tensor image_global, text_global, taught_images, taught_texts, present, image_group, captions_group;

  Features features() const {
    Features out;
    out.images["image"].global = image_global;
    out.texts["caption"].global = text_global;
    out.texts["caption"].present = present;
    out.teacher_images["image"].global = taught_images;
    out.teacher_texts["caption"].global = taught_texts;
    out.duplicates.image_group = image_group;
    out.duplicates.captions_group = captions_group;
    return out;
  }
  std::vector<at::Tensor> leaves() const { return {image_global, text_global}; }
};

/// Of four or more images, the last is a duplicate of the first, and two captions of the second and third are equal. The last caption of
/// image 0 and all captions of image 1 are absent.
TaughtCase taught_case(std::int64_t images, std::int64_t captions, at::ScalarType type = at::kDouble) {
  at::manual_seed(5);
  TaughtCase out{at::randn({images, kStudentWidth}, type).requires_grad_(true),
                 at::randn({images, captions, kStudentWidth}, type).requires_grad_(true),
                 at::randn({images, kTeachersWidth}, type),
                 at::randn({images, captions, kTeachersWidth}, type),
                 at::ones({images, captions}, at::kBool),
                 at::arange(images) % std::max<std::int64_t>(1, images - 1),
                 at::arange(images * captions).view({images, captions})};
  if (captions > 1) out.present[0][captions - 1] = false;
  if (images > 4) out.present[1].fill_(false);
  if (images >= 4) out.captions_group[2][0] = out.captions_group[3][captions - 1].item<std::int64_t>();
  return out;
}

std::shared_ptr<Objective> taught_objective(const std::string& name, const std::string& yaml, at::ScalarType type = at::kDouble) {
  return make_objective(name, "{" + yaml + "}", kStudentWidth, type);
}

StepContext with_scale(double scale) {
  StepContext context;
  context.teacher_scale = scale;
  return context;
}

at::Tensor unit_of(const at::Tensor& rows) {
  return rows / rows.square().sum(-1, /*keepdim=*/true).sqrt();
}

/// The loss as golden/teachers.md writes it, with all matrices in memory.
class TaughtFormula {
 public:
  TaughtFormula(const TaughtCase& given, const std::string& duplicates) : case_(given), duplicates_(duplicates) {}

  /// Returns R[i, j] of slot k: 1, -1 or 0.
  at::Tensor relation(std::int64_t k) const {
    const std::int64_t images = case_.present.size(0);
    at::Tensor out = at::eye(images, at::kDouble) * 2 - 1;
    at::Tensor same = case_.image_group.unsqueeze(1) == case_.image_group;
    for (std::int64_t other = 0; other < case_.present.size(1); ++other)
      same = same | ((case_.captions_group.select(1, other).unsqueeze(1) == case_.captions_group.select(1, k)) &
                     case_.present.select(1, other).unsqueeze(1));
    same = same & at::eye(images, at::kBool).logical_not();
    if (duplicates_ == "masked") out = out.masked_fill(same, 0.0);
    if (duplicates_ == "positive") out = out.masked_fill(same, 1.0);
    return out.masked_fill(case_.present.select(1, k).logical_not().unsqueeze(0), 0.0);
  }

  /// Returns the mean of the two means of `row`(logits, relation) over the rows that count. `logits` are those of each model, [n] each.
  template <class Row>
  at::Tensor mean(const std::vector<at::Tensor>& logits, const Row& row) const {  // logits [B, B, K] of each model
    at::Tensor sums[2] = {at::zeros({}, at::kDouble), at::zeros({}, at::kDouble)};
    double counts[2] = {0, 0};
    for (std::int64_t k = 0; k < case_.present.size(1); ++k)
      for (std::int64_t i = 0; i < case_.present.size(0); ++i)
        for (int side = 0; side < 2; ++side) {
          const at::Tensor of_row = side == 0 ? relation(k)[i] : relation(k).select(1, i);
          const bool counts_row = side == 0 ? (of_row == 1).any().item<bool>() : case_.present[i][k].item<bool>();
          if (!counts_row) continue;
          std::vector<at::Tensor> shown;
          for (const at::Tensor& all : logits)
            shown.push_back((side == 0 ? all.select(2, k)[i] : all.select(2, k).select(1, i)).index({of_row != 0}));
          sums[side] = sums[side] + row(shown);
          ++counts[side];
        }
    return (sums[0] / counts[0] + sums[1] / counts[1]) / 2;
  }

  at::Tensor logits(const at::Tensor& images, const at::Tensor& texts, const at::Tensor& scale) const {
    return at::einsum("id,jkd->ijk", {unit_of(images), unit_of(texts.nan_to_num(1.0))}) * scale;
  }

  at::Tensor cross_entropy(const at::Tensor& student, const at::Tensor& teacher) const {
    return mean({student, teacher}, [](const auto& row) { return -(row[1].softmax(0) * row[0].log_softmax(0)).sum(); });
  }

  at::Tensor divergence(const at::Tensor& student, const std::vector<at::Tensor>& teachers) const {
    std::vector<at::Tensor> all{student};
    all.insert(all.end(), teachers.begin(), teachers.end());
    return mean(all, [](const auto& row) {
      at::Tensor sum = at::zeros({}, at::kDouble);
      for (std::size_t t = 1; t < row.size(); ++t)
        sum = sum + (row[t].softmax(0) * (row[t].log_softmax(0) - row[0].log_softmax(0))).sum();
      return sum / static_cast<double>(row.size() - 1);
    });
  }

  at::Tensor affinity(const at::Tensor& scale) const {
    const at::Tensor student = logits(case_.image_global, case_.text_global, scale);
    const auto teacher = [&](std::int64_t first, std::int64_t width, double temperature) {
      return logits(case_.taught_images.narrow(1, first, width), case_.taught_texts.narrow(2, first, width),
                    at::full({}, 1 / temperature, at::kDouble));
    };
    return divergence(student, {teacher(0, kFirstTeacher, 0.2), teacher(kFirstTeacher, kTeachersWidth - kFirstTeacher, 0.4)});
  }

  at::Tensor distill(const at::Tensor& scale, double teacher_scale) const {
    return cross_entropy(logits(case_.image_global, case_.text_global, scale),
                         logits(case_.taught_images, case_.taught_texts, at::full({}, teacher_scale, at::kDouble)));
  }

 private:
  TaughtCase case_;
  std::string duplicates_;
};

class Teachers : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Duplicates, Teachers, testing::Values("negative", "masked", "positive"), [](const auto& each) { return std::string(each.param); });

TEST_P(Teachers, HaveTheLossesAndGradientsOfTheFormulasInTilesOfAnySize) {
  const std::string duplicates = GetParam();
  for (const auto& [images, captions] : {std::pair(6, 1), std::pair(5, 3)})
    for (const char* name : {"distill", "affinity"}) {
      const bool live = std::string(name) == "distill";
      const TaughtCase given = taught_case(images, captions);
      const TaughtFormula formula(given, duplicates);
      for (const char* chunk : {"null", "1", "2", "7"}) {
        const auto objective = taught_objective(name, (live ? std::string("clip_weight: 0") : std::string(kTwoTeachers) + ", lambda: 1") +
                                                          ", duplicates: " + duplicates + ", chunk: " + chunk);
        const at::Tensor logit_scale = objective->named_parameters()["logit_scale"];
        const Losses losses = objective->forward(given.features(), with_scale(2.5));
        std::vector<at::Tensor> leaves = given.leaves();
        leaves.push_back(logit_scale);
        const at::Tensor wanted = live ? formula.distill(logit_scale.exp(), 2.5) : formula.affinity(logit_scale.exp());
        EXPECT_NEAR(terms_of(losses).at("loss_distillation"), wanted.item<double>(), 1e-12) << name << ", chunk " << chunk;
        const auto ours = loss_and_gradients(losses.total, leaves), theirs = loss_and_gradients(wanted, leaves);
        for (std::size_t i = 0; i < ours.size(); ++i)
          EXPECT_TRUE(at::allclose(ours[i], theirs[i], 1e-9, 1e-11)) << name << ", chunk " << chunk << ", result " << i;
      }
    }
}

TEST_P(Teachers, HaveTheRightGradients) {
  const TaughtCase given = taught_case(5, 2);
  for (const auto& [name, yaml] : {std::pair<std::string, std::string>("distill", "clip_weight: 0.5, distill_weight: 2"),
                                   {"affinity", std::string(kTwoTeachers) + ", lambda: 0.4"},
                                   {"affinity", std::string(kTwoTeachers) + ", student_temperature: 0.3"},
                                   {"affinity", std::string(kTwoTeachers) + ", matryoshka: {widths: [4, 2], weights: [1, 0.5]}"}}) {
    const auto objective = taught_objective(name, yaml + ", duplicates: " + GetParam());
    std::vector<at::Tensor> leaves = given.leaves();
    leaves.push_back(objective->named_parameters()["logit_scale"]);
    expect_gradients_match(leaves, [&] { return objective->forward(given.features(), with_scale(3)).total; });
  }
}

TEST(Teachers, AbsentCaptionsMayHoldNaNAndTouchNothing) {
  const TaughtCase given = taught_case(5, 3);
  TaughtCase padded = given;
  const at::Tensor absent = given.present.logical_not().unsqueeze(2);
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
  padded.text_global = given.text_global.detach().masked_fill(absent, kNaN).requires_grad_(true);
  padded.taught_texts = given.taught_texts.masked_fill(absent, kNaN);
  const auto objective = taught_objective("affinity", std::string(kTwoTeachers) + ", matryoshka: {widths: [4, 1]}");
  const auto results = [&](const TaughtCase& each) {
    return loss_and_gradients(objective->forward(each.features(), {}).total, each.leaves());
  };
  const auto plain = results(given), with_nan = results(padded);
  for (std::size_t i = 0; i < plain.size(); ++i) EXPECT_TRUE(at::equal(plain[i], with_nan[i])) << i;
}

TEST(Teachers, BatchesWithoutAnyCaptionHaveNoLoss) {
  TaughtCase given = taught_case(3, 2);
  given.present.fill_(false);
  const auto results = loss_and_gradients(taught_objective("affinity", kTwoTeachers)->forward(given.features(), {}).total, given.leaves());
  for (const at::Tensor& each : results) EXPECT_EQ(each.abs().max().item<double>(), 0);
}

TEST(Teachers, OnePairHasNoLossAndNoGradient) {
  const TaughtCase given = taught_case(1, 1);
  for (const auto& [name, yaml] : {std::pair("distill", ""), std::pair("affinity", kTwoTeachers)}) {
    const Losses losses = taught_objective(name, yaml)->forward(given.features(), with_scale(10));
    for (const auto& [term, value] : terms_of(losses)) EXPECT_EQ(value, 0) << name << " " << term;
    for (const at::Tensor& each : loss_and_gradients(losses.total, given.leaves())) EXPECT_EQ(each.abs().max().item<double>(), 0) << name;
  }
}

TEST(Teachers, ATeacherThatEqualsTheStudentLeavesNothingToLearn) {
  TaughtCase given = taught_case(6, 2);
  given.taught_images = given.image_global.detach();
  given.taught_texts = given.text_global.detach();
  const auto objective = taught_objective("affinity", "teachers: [{width: 4, temperature: 0.1}], student_temperature: 0.1, lambda: 1");
  const auto results = loss_and_gradients(objective->forward(given.features(), {}).total, given.leaves());
  for (const at::Tensor& each : results) EXPECT_LT(each.abs().max().item<double>(), 1e-12);
  const auto live = taught_objective("distill", "clip_weight: 0");
  const double scale = live->named_parameters()["logit_scale"].exp().item<double>();
  const auto of_live = loss_and_gradients(live->forward(given.features(), with_scale(scale)).total, given.leaves());
  EXPECT_GT(of_live[0].item<double>(), 0.01) << "the cross-entropy's minimum is the teacher's entropy";
  for (std::size_t i = 1; i < of_live.size(); ++i) EXPECT_LT(of_live[i].abs().max().item<double>(), 1e-12);
}

TEST(Teachers, WithoutWeightAreTheContrast) {
  const TaughtCase given = taught_case(6, 2);
  const auto contrast = make_objective("multi_positive_clip", "{text_view: caption}", kStudentWidth);
  const auto wanted = loss_and_gradients(contrast->forward(given.features(), {}).total, given.leaves());
  const auto same = [&](const std::string& name, const std::string& yaml, const Features& features, const StepContext& context) {
    const auto ours = loss_and_gradients(taught_objective(name, yaml)->forward(features, context).total, given.leaves());
    for (std::size_t i = 0; i < ours.size(); ++i) EXPECT_TRUE(at::allclose(ours[i], wanted[i], 1e-12, 1e-14)) << yaml;
  };
  same("affinity", std::string(kTwoTeachers) + ", lambda: 0", given.features(), {});
  same("distill", "distill_weight: 0", given.features(), with_scale(10));
  Features alone = given.features();
  alone.teacher_images.clear();
  alone.teacher_texts.clear();
  StepContext evaluation;
  evaluation.training = false;
  same("affinity", kTwoTeachers, alone, evaluation);
  EXPECT_TRUE(message_of([&] { taught_objective("affinity", kTwoTeachers)->forward(alone, {}); }).starts_with("no teacher's image view"));
}

TEST(Teachers, GiveNoGradientToTheirEmbeddings) {
  TaughtCase given = taught_case(4, 1);
  given.taught_images.requires_grad_(true);
  given.taught_texts.requires_grad_(true);
  taught_objective("affinity", kTwoTeachers)->forward(given.features(), {}).total.backward();
  EXPECT_FALSE(given.taught_images.grad().defined());
  EXPECT_FALSE(given.taught_texts.grad().defined());
}

TEST(Teachers, StayFiniteAtTemperaturesNearZero) {
  const TaughtCase given = taught_case(7, 2, at::kFloat);
  const auto objective = taught_objective("affinity",
                                          "teachers: [{width: 3, temperature: 0.0005}, {width: 5, temperature: 0.0005}], "
                                          "student_temperature: 0.0005, chunk: 2",
                                          at::kFloat);
  for (const at::Tensor& each : loss_and_gradients(objective->forward(given.features(), {}).total, given.leaves()))
    EXPECT_TRUE(each.isfinite().all().item<bool>());
}

TEST(Teachers, WorkWithEmbeddingsInBfloat16UnderAutocastInFloat32) {
  TaughtCase given = taught_case(6, 1, at::kFloat);
  const auto objective = taught_objective("affinity", kTwoTeachers, at::kFloat);
  given.taught_images = given.taught_images.to(at::kBFloat16);
  given.taught_texts = given.taught_texts.to(at::kBFloat16);
  const at::Tensor narrow = objective->forward(given.features(), {}).total;
  given.taught_images = given.taught_images.to(at::kFloat);
  given.taught_texts = given.taught_texts.to(at::kFloat);
  EXPECT_TRUE(at::equal(narrow, objective->forward(given.features(), {}).total));
}

TEST(Teachers, NeedNoMatrixOfAllPairs) {
  constexpr std::int64_t kMany = 2048;
  TaughtCase given = taught_case(kMany, 1, at::kFloat);
  const auto objective = taught_objective("affinity", std::string(kTwoTeachers) + ", chunk: 32, matryoshka: {widths: [4, 2]}", at::kFloat);
  const LargestAllocation largest;
  objective->forward(given.features(), {}).total.backward();
  EXPECT_LT(largest.bytes(), kMany * kMany) << "a quarter of a matrix in float32";
}

TEST(Teachers, SayWhatIsWrong) {
  const auto error = [](const std::string& name, const std::string& yaml) {
    return message_of([&] { taught_objective(name, yaml); });
  };
  const auto contains = [](const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  contains(error("affinity", ""), "teachers: is not set: name them, as in [{width: 768, temperature: 0.01}]");
  contains(error("affinity", "teachers: [{width: 3}]"), "temperature: is not set");
  contains(error("affinity", "teachers: [{temperature: 0.1}]"), "width: is not set");
  contains(error("affinity", "teachers: [{width: 3, temperature: 0}]"), "temperature");
  contains(error("affinity", "teachers: [{width: 3, temperature: -1}]"), "above 0");
  contains(error("affinity", "teachers: [{width: 3, temperature: .inf}]"), "teachers[0].temperature: expected a number");
  contains(error("affinity", std::string(kTwoTeachers) + ", student_temperature: .nan"), "student_temperature");
  contains(error("affinity", std::string(kTwoTeachers) + ", lambda: 1.5"), "lambda");
  contains(error("distill", "teacher_temperature: 0"), "teacher_temperature");
  const TaughtCase given = taught_case(4, 1);
  EXPECT_EQ(message_of([&] { taught_objective("distill", "")->forward(given.features(), {}); }),
            "objective distill: the teacher has no learned temperature: set objective.teacher_temperature");
  EXPECT_EQ(message_of([&] { taught_objective("affinity", "teachers: [{width: 3, temperature: 1}]")->forward(given.features(), {}); }),
            "affinity: the teachers' widths add up to 3, but their embeddings have 8 columns");
  TaughtCase short_by_one = given;
  short_by_one.taught_texts = given.taught_texts.narrow(0, 0, 3);
  EXPECT_EQ(message_of([&] { taught_objective("affinity", kTwoTeachers)->forward(short_by_one.features(), {}); }),
            "affinity: the teachers' embeddings of 4 images with 1 captions must be [B, E] and [B, K, E], got [4, 8] and [3, 1, 8]");
}

TEST(Teachers, ShareARunOnlyIfTheyAreTheSame) {
  const auto needs = [](const std::string& objectives) { return make_objective("weighted_sum", "{objectives: [" + objectives + "]}")->needs(); };
  EXPECT_EQ(*needs("{name: clip}, {name: distill, teacher: /a}").teacher_model, "/a");
  EXPECT_EQ(message_of([&] { needs("{name: distill, teacher: /a}, {name: distill, label: b, teacher: /b}"); }),
            "objective: a run has one teacher, but the objectives need the model /a and the model /b: leave out one of the two");
  EXPECT_NE(message_of([&] { needs("{name: distill, teacher: /a}, {name: affinity, teachers: [{width: 3, temperature: 1}]}"); })
                .find("leave out one of the two, or give it another view"),
            std::string::npos);
}

// ---- nested widths

struct Nested {
  std::string label, name, yaml;
};

class NestedWidths : public testing::TestWithParam<Nested> {};
INSTANTIATE_TEST_SUITE_P(All, NestedWidths,
                         testing::Values(Nested{"clip", "clip", "label_smoothing: 0.1"}, Nested{"clip_masked", "clip", "mask_duplicates: true"},
                                         Nested{"siglip", "siglip", "init_logit_bias: -1"},
                                         Nested{"captions", "multi_positive_clip", "text_view: caption, duplicates: positive"},
                                         Nested{"all", "multi_positive_clip", "text_view: caption, denominator: all"},
                                         Nested{"sigmoid", "multi_positive_sigmoid", "text_view: caption, init_logit_bias: -1"},
                                         Nested{"affinity", "affinity", kTwoTeachers}, Nested{"distill", "distill", "teacher_temperature: 0.3"}),
                         [](const auto& each) { return each.param.label; });

TaughtCase nested_case(const std::string& name) {
  const bool pairs = name == "clip" || name == "siglip";
  TaughtCase out = taught_case(6, pairs ? 1 : 2);
  if (!pairs) return out;
  out.text_global = out.text_global.detach().squeeze(1).requires_grad_(true);
  out.present = at::Tensor();
  return out;
}

Features cut_features(const TaughtCase& given, std::int64_t width) {
  Features out = given.features();
  for (at::Tensor* rows : {&out.images["image"].global, &out.texts["caption"].global}) *rows = rows->narrow(-1, 0, width);
  return out;
}

TEST_P(NestedWidths, AddUpTheLossesOfCutEmbeddings) {
  const auto& [label, name, yaml] = GetParam();
  const TaughtCase given = nested_case(name);
  const auto plain = taught_objective(name, yaml);
  const std::map<std::int64_t, double> weights = {{3, 0.5}, {4, 1}, {1, 2}};
  at::Tensor wanted = at::zeros({}, at::kDouble);
  std::map<std::string, double> terms;
  for (const auto& [width, weight] : weights) {
    const at::Tensor one = plain->forward(cut_features(given, width), {}).total;
    terms[concat("loss_", width)] = one.item<double>();
    wanted = wanted + weight * one;
  }
  const auto theirs = loss_and_gradients(wanted, given.leaves());
  for (const char* chunk : {"null", "2"}) {
    const auto nested = taught_objective(name, yaml + ", chunk: " + chunk + ", matryoshka: {widths: [3, 4, 1], weights: [0.5, 1, 2]}");
    const Losses losses = nested->forward(given.features(), {});
    for (const auto& [term, value] : terms) EXPECT_NEAR(terms_of(losses).at(term), value, 1e-10) << term;
    const auto ours = loss_and_gradients(losses.total, given.leaves());
    for (std::size_t i = 0; i < ours.size(); ++i) EXPECT_TRUE(at::allclose(ours[i], theirs[i], 1e-9, 1e-11)) << "result " << i;
    EXPECT_EQ(nested->nested_widths(), (std::vector<std::int64_t>{3, 4, 1}));
    for (const auto& [term, level] : nested->chance_levels(10)) EXPECT_TRUE(terms_of(losses).contains(term)) << term;
  }
}

TEST_P(NestedWidths, TrainOnlyTheColumnsThatTheyContain) {
  const auto& [label, name, yaml] = GetParam();
  const TaughtCase given = nested_case(name);
  const auto nested = taught_objective(name, yaml + ", matryoshka: {widths: [2]}");
  const auto results = loss_and_gradients(nested->forward(given.features(), {}).total, given.leaves());
  for (std::size_t i = 1; i < results.size(); ++i) {
    EXPECT_EQ(results[i].slice(-1, 2).abs().max().item<double>(), 0);
    EXPECT_GT(results[i].slice(-1, 0, 2).abs().max().item<double>(), 0);
  }
}

TEST_P(NestedWidths, RefuseWidthsAndWeightsThatDoNotFit) {
  const auto& [label, name, yaml] = GetParam();
  const auto error = [&](const std::string& widths) {
    return message_of([&] { taught_objective(name, yaml + ", matryoshka: {" + widths + "}"); });
  };
  const auto contains = [](const std::string& text, const std::string& part) { EXPECT_NE(text.find(part), std::string::npos) << text; };
  contains(error("widths: []"), "matryoshka.widths: is empty");
  contains(error("widths: [2, 2]"), "matryoshka.widths: has 2 twice");
  contains(error("widths: [0]"), "matryoshka.widths: must be at least 1, got 0");
  contains(error("widths: [2, 4], weights: [1]"), "matryoshka.weights: has 1 numbers for 2 widths");
  contains(error("widths: [2], weights: [-1]"), "matryoshka.weights");
  contains(error("widths: [2], weights: [.inf]"), "matryoshka.weights[0]: expected a number");
  EXPECT_EQ(error("widths: [2, 5]"), "objective " + name +
                                         ": matryoshka.widths has 5, but the embeddings are 4 wide: leave it out, or make "
                                         "model.*.projection.embed_dim larger");
}

TEST(NestedWidthsOf, OtherObjectivesAreRefused) {
  for (const auto& [name, yaml] : {std::pair("filip", ""), std::pair("dreamlip", ""), std::pair("flair", "heads: 2, ")}) {
    const std::string message =
        message_of([&, name = name, yaml = yaml] { taught_objective(name, std::string(yaml) + "matryoshka: {widths: [2]}"); });
    EXPECT_NE(message.find("matryoshka"), std::string::npos) << message;
    EXPECT_NE(message, "no error") << name;
  }
  for (const char* name : {"clip", "siglip"})
    EXPECT_EQ(message_of([&] { taught_objective(name, "hard_negatives: own, matryoshka: {widths: [2]}"); }),
              std::string("objective ") + name + ": matryoshka does not work with hard_negatives: leave out one of the two");
}

TEST(NestedWidthsOf, SumsAreThoseOfAllTheirObjectives) {
  const auto sum = make_objective("weighted_sum",
                                  "{objectives: [{name: clip, matryoshka: {widths: [4, 2]}}, {name: siglip, init_logit_scale: 2.6592, label: s, "
                                  "matryoshka: {widths: [1, 4]}}, {name: clip, label: unused, weight: 0, matryoshka: {widths: [3]}}], "
                                  "shared_logit_scale: false}",
                                  kStudentWidth);
  EXPECT_EQ(sum->nested_widths(), (std::vector<std::int64_t>{1, 2, 4}));
}

}  // namespace
}  // namespace tessera
