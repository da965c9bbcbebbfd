#include <cmath>

#include <gtest/gtest.h>

#include "src/measure/pass_cost.h"
#include "src/models/autocast.h"
#include "src/objectives/dino.h"
#include "tests/objectives/pairs.h"
#include "tests/support/gradcheck.h"

namespace tessera {
namespace {

constexpr std::int64_t kWidth = 4;

struct DinoCase {
  std::string yaml;
  std::shared_ptr<Dino> student, teacher;
  Features features;

  explicit DinoCase(const std::string& more = "", std::int64_t batch = 3, at::ScalarType dtype = at::kDouble,
                    const std::string& sizes = "global_crops: 2, local_crops: 3, out_dim: 6")
      : yaml("{hidden_dim: 5, bottleneck_dim: 3, " + sizes + (more.empty() ? "" : ", " + more) + "}"),
        student(make(7, dtype)),
        teacher(make(8, dtype)) {
    at::manual_seed(1);
    for (const auto& [view, need] : student->needs().images) {
      features.images[view].global = at::randn({batch, kWidth}, dtype).requires_grad_(true);
      if (need.teacher) features.teacher_images[view].global = at::randn({batch, kWidth}, dtype);
    }
  }

  std::shared_ptr<Dino> make(std::uint64_t seed, at::ScalarType dtype) const {
    at::manual_seed(seed);
    auto out = std::dynamic_pointer_cast<Dino>(
        objectives().make({"dino", config::parse_yaml(yaml, "test")}, "dino", {.embed_dim = kWidth}));
    out->to(dtype);
    // Replaces the initial weights, whose standard deviation of 0.02 would make all outputs nearly equal.
    const at::NoGradGuard no_grad;
    for (at::Tensor& parameter : out->parameters())
      if (parameter.requires_grad()) parameter.normal_();
    return out;
  }
  Losses forward(StepContext context = {}) {
    context.teacher = teacher.get();
    return student->forward(features, context);
  }
  at::Tensor center() const { return student->named_buffers()["loss.center"]; }
  at::Tensor logits(Dino& objective, const at::Tensor& crop) const {
    return std::dynamic_pointer_cast<DinoHead>(objective.named_modules()["head"])->forward(crop);
  }
};

TEST(Dino, LossIsTheMeanOverPairsOfAGlobalAndAnotherCrop) {
  for (const bool global_too : {true, false}) {
    DinoCase tiny(global_too ? "" : "student_global_crops: false");
    tiny.center().copy_(at::randn({1, 6}, at::kDouble));
    const at::Tensor center = tiny.center().clone();
    double sum = 0;
    std::int64_t pairs = 0;
    for (const char* global : {"global_0", "global_1"}) {
      const at::Tensor goal =
          ((tiny.logits(*tiny.teacher, tiny.features.teacher_image(global).global) - center) / 0.04).softmax(1);
      for (const char* crop : {"global_0", "global_1", "local_0", "local_1", "local_2"}) {
        if (std::string(crop) == global || (!global_too && crop[0] == 'g')) continue;
        const at::Tensor seen = (tiny.logits(*tiny.student, tiny.features.image(crop).global) / 0.1).log_softmax(1);
        sum -= (goal * seen).sum(1).mean().item<double>();
        ++pairs;
      }
    }
    EXPECT_EQ(pairs, global_too ? 8 : 6);
    EXPECT_NEAR(tiny.forward().total.item<double>(), sum / static_cast<double>(pairs), 1e-9) << global_too;
  }
}

TEST(Dino, GradientsMatchFiniteDifferences) {
  for (const char* sizes : {"global_crops: 2, local_crops: 1, out_dim: 6, norm_last_layer: false",
                            "global_crops: 1, local_crops: 2, out_dim: 6",
                            "global_crops: 3, local_crops: 1, out_dim: 4, layers: 1, student_global_crops: false"}) {
    SCOPED_TRACE(sizes);
    DinoCase tiny("", 2, at::kDouble, sizes);
    const StepContext still{.training = false};  // otherwise each call would move the center
    std::vector<at::Tensor> leaves;
    for (auto& [name, view] : tiny.features.images) leaves.push_back(view.global);
    for (const at::Tensor& parameter : tiny.student->parameters())
      if (parameter.requires_grad()) leaves.push_back(parameter);
    expect_gradients_match(
        leaves, [&] { return tiny.forward(still).total; }, 1e-5);
  }
}

TEST(Dino, TeacherGetsNoGradient) {
  DinoCase tiny;
  for (auto& [name, view] : tiny.features.teacher_images) view.global.requires_grad_(true);
  tiny.forward().total.backward();
  for (const auto& [name, view] : tiny.features.teacher_images) EXPECT_FALSE(view.global.grad().defined()) << name;
  for (const auto& item : tiny.teacher->named_parameters()) EXPECT_FALSE(item.value().grad().defined()) << item.key();
  for (const auto& item : tiny.student->named_parameters())
    EXPECT_EQ(item.value().grad().defined(), item.key() != "head.last_layer.weight_g") << item.key();
  EXPECT_TRUE(at::equal(tiny.student->named_parameters()["head.last_layer.weight_g"], at::ones({6, 1}, at::kDouble)));
}

TEST(Dino, CenterFollowsTheTeacherLogitsAfterTheLoss) {
  DinoCase tiny("center_momentum: 0.8");
  const at::Tensor start = at::randn({1, 6}, at::kDouble);
  tiny.center().copy_(start);
  std::vector<at::Tensor> rows;
  for (const auto& [name, view] : tiny.features.teacher_images) rows.push_back(tiny.logits(*tiny.teacher, view.global));
  const StepContext evaluation{.training = false};
  const double loss = tiny.forward(evaluation).total.item<double>();
  EXPECT_TRUE(at::equal(tiny.center(), start)) << "evaluation does not change the center";
  EXPECT_DOUBLE_EQ(tiny.forward().total.item<double>(), loss) << "the loss uses the old center";
  EXPECT_TRUE(at::allclose(tiny.center(), 0.8 * start + 0.2 * at::cat(rows).mean(0, true)));
  EXPECT_GT(std::abs(tiny.forward(evaluation).total.item<double>() - loss), 1e-6);
  EXPECT_EQ(tiny.teacher->named_buffers()["loss.center"].abs().sum().item<double>(), 0) << "only the student's center is used";
}

TEST(Dino, TeacherTemperatureFollowsTheEpoch) {
  DinoCase tiny("warmup_teacher_temperature: 0.02, warmup_teacher_temperature_epochs: 3"),
      cold("teacher_temperature: 0.02"), between("teacher_temperature: 0.03"), warm;
  const auto loss_at = [](DinoCase& each, std::int64_t epoch) {
    return each.forward({.epoch = epoch, .training = false}).total.item<double>();
  };
  EXPECT_NEAR(loss_at(tiny, 0), loss_at(cold, 0), 1e-12);
  EXPECT_NEAR(loss_at(tiny, 1), loss_at(between, 0), 1e-12);
  EXPECT_NEAR(loss_at(tiny, 2), loss_at(warm, 0), 1e-12);
  EXPECT_NEAR(loss_at(tiny, 50), loss_at(warm, 50), 1e-12);
  EXPECT_TRUE(tiny.student->follows_step());
}

TEST(Dino, TeacherMomentumRisesByHalfACosine) {
  const DinoCase tiny;
  const auto at_step = [&](std::int64_t step) { return tiny.student->teacher_momentum({.step = step, .total_steps = 100}); };
  EXPECT_DOUBLE_EQ(at_step(0), 0.996);
  EXPECT_DOUBLE_EQ(at_step(50), 0.998);
  EXPECT_NEAR(at_step(25), 1 - 0.002 * (1 + std::sqrt(0.5)), 1e-15);
  EXPECT_LT(at_step(99), 1);
  EXPECT_DOUBLE_EQ(DinoCase("teacher_momentum: 0.9, teacher_momentum_end: 0.9").student->teacher_momentum({}), 0.9);
}

TEST(Dino, ErrorForATowerWithoutReadOutNamesTheSetting) {
  DinoCase tiny;
  for (auto& [name, view] : tiny.features.images) view.global = at::Tensor();
  const std::string error = error_of([&] { tiny.forward(); });
  EXPECT_NE(error.find("set model.image.readout to gap"), std::string::npos) << error;
}

TEST(Dino, CollapsedTeachersHaveMinimalOrMaximalEntropy) {
  const auto entropy = [](double spread) {
    DinoCase tiny;
    tiny.center().copy_(at::arange(6, at::kDouble).view({1, 6}) * -spread);
    for (auto& [name, view] : tiny.features.teacher_images) view.global.zero_();
    const at::NoGradGuard no_grad;
    for (at::Tensor& parameter : tiny.teacher->parameters()) parameter.fill_(1);
    const Losses losses = tiny.forward();
    EXPECT_EQ(losses.terms.at(0).first, "teacher_entropy");
    return losses.terms.at(0).second.item<double>();
  };
  EXPECT_NEAR(entropy(0), std::log(6.0), 1e-9);
  EXPECT_NEAR(entropy(100), 0, 1e-9);
}

TEST(Dino, LossIgnoresAutocastAndHalfPrecision) {
  DinoCase tiny("", 3, at::kFloat), halves("", 3, at::kFloat);
  for (DinoCase* each : {&tiny, &halves})
    for (auto* views : {&each->features.images, &each->features.teacher_images})
      for (auto& [name, view] : *views) {
        view.global = view.global.detach().to(at::kBFloat16);
        if (each == &tiny) view.global = view.global.to(at::kFloat);
      }
  const double expected = tiny.forward().total.item<double>();
  const Autocast autocast(at::kCPU);
  const at::Tensor loss = halves.forward().total;
  EXPECT_EQ(loss.scalar_type(), at::kFloat);
  EXPECT_NEAR(loss.item<double>(), expected, 1e-6);
}

// The logits of ten crops at once would take ten times the memory of one crop's logits.
TEST(Dino, HoldsStudentLogitsOfOneCropAtATime) {
  const auto peak_with = [](std::int64_t crops) {
    DinoCase wide("", 8, at::kFloat, "global_crops: 2, out_dim: 20000, local_crops: " + std::to_string(crops));
    return MemoryTrace::of([&] { wide.forward().total.backward(); }).peak();
  };
  const double logits = 8 * 20000 * 4;
  EXPECT_LT(peak_with(10) - peak_with(2), logits);
}

TEST(Dino, ReportsMistakes) {
  const auto error = [](const std::string& yaml) { return error_of([&] { make_objective("dino", yaml); }); };
  EXPECT_EQ(error("{global_crops: 0}"), "test:1: dino.global_crops: expected from 1 to 100, got 0");
  EXPECT_EQ(
      error("{global_crops: 1, local_crops: 0, out_dim: 8}"),
      "test:1: dino.local_crops: is 0, and a single global crop has no other crop to be compared with: set local_crops, or "
      "two global_crops");
  EXPECT_EQ(error("{student_global_crops: false, local_crops: 0, out_dim: 8}"),
            "test:1: dino.local_crops: is 0, and without student_global_crops the student sees no crops");
  EXPECT_EQ(error("{global_crops: 2, local_crops: 0, out_dim: 8, hidden_dim: 4}"), "no error");
  DinoCase tiny;
  EXPECT_THROW(tiny.student->forward(tiny.features, {}), c10::Error);
}

TEST(Dino, NeedsEachCropAndNoText) {
  const Needs needs = DinoCase().student->needs();
  EXPECT_EQ(needs.images, (std::map<std::string, ViewNeeds>{{"global_0", {.teacher = true}},
                                                            {"global_1", {.teacher = true}},
                                                            {"local_0", {}},
                                                            {"local_1", {}},
                                                            {"local_2", {}}}));
  EXPECT_TRUE(needs.texts.empty());
}

}  // namespace
}  // namespace tessera
