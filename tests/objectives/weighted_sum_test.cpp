#include <cmath>

#include "tests/objectives/pairs.h"
#include <tessera/objectives/contrastive_objective.h>

namespace tessera {
namespace {

TEST(WeightedSum, SharesOneScaleOrKeepsOnePerObjective) {
  const char* list = "objectives: [{name: clip}, {name: clip, label: again, weight: 0.5}]";
  const auto shared = make_objective("weighted_sum", std::string("{") + list + "}");
  EXPECT_EQ(shared->named_parameters().keys(), std::vector<std::string>{"logit_scale"});
  const auto separate = make_objective("weighted_sum", std::string("{shared_logit_scale: false, ") + list + "}");
  EXPECT_EQ(separate->named_parameters().keys(),
            (std::vector<std::string>{"objectives.clip.logit_scale", "objectives.again.logit_scale"}));
  const at::NoGradGuard no_grad;
  shared->named_parameters()["logit_scale"].fill_(9);
  separate->named_parameters()["objectives.again.logit_scale"].fill_(9);
  shared->after_step({});
  separate->after_step({});
  EXPECT_DOUBLE_EQ(shared->named_parameters()["logit_scale"].item<double>(), std::log(100.0));
  EXPECT_DOUBLE_EQ(separate->named_parameters()["objectives.again.logit_scale"].item<double>(), std::log(100.0));
}

TEST(WeightedSum, SharedScaleStartsAtTheValueInAnObjectivesSettings) {
  const auto start = [](const std::string& list) {
    const auto sum = make_objective("weighted_sum", "{objectives: [" + list + "]}");
    return sum->named_parameters()["logit_scale"].item<double>();
  };
  EXPECT_NEAR(start("clip"), kInitialLogitScale, 1e-6);
  EXPECT_NEAR(start("siglip"), std::log(10), 1e-6);
  EXPECT_EQ(start("clip, {name: siglip, init_logit_scale: 1}, {name: multi_positive_sigmoid, init_logit_scale: 1}"), 1);
  EXPECT_EQ(error_of([&] { start("{name: siglip, init_logit_scale: 1}, {name: siglip, label: other, init_logit_scale: 2}"); }),
            "objectives: siglip starts with a logit_scale of 1, other with 2, but they share it: make them equal, or set "
            "shared_logit_scale: false");
}

TEST(WeightedSum, NestedSumHasItsOwnScale) {
  const auto sum = make_objective(
      "weighted_sum",
      "{objectives: [{name: clip}, {name: weighted_sum, label: inner, settings: {objectives: [{name: clip}]}}]}");
  EXPECT_EQ(sum->named_parameters().keys(), (std::vector<std::string>{"logit_scale", "objectives.inner.logit_scale"}));
  const Pairs pairs = random_pairs({2, 1}, 2);
  EXPECT_TRUE(at::allclose(evaluate(*sum, pairs).loss, 2 * evaluate(*make_objective("clip", "{}"), pairs).loss));
}

TEST(WeightedSum, TakesSettingsNextToTheNameOrInAGroup) {
  const auto resolved = [](const std::string& list) {
    const config::ModuleSettings choice{"weighted_sum", config::parse_yaml("{objectives: [" + list + "]}", "test")};
    return config::to_yaml(objectives().resolve(choice, "objective").settings);
  };
  const std::string flat = resolved("{name: filip, weight: 0.5, label: tokens, token_drop_rate: 0.25}");
  EXPECT_EQ(resolved("{name: filip, weight: 0.5, label: tokens, settings: {token_drop_rate: 0.25}}"), flat);
  EXPECT_EQ(resolved("clip"), resolved("{name: clip, label: clip, weight: 1}"));
  const config::Node spelt = config::parse_yaml(flat, "test");
  const config::Node& term = spelt.find("objectives")->items().at(0);
  EXPECT_EQ(term.find("token_drop_rate")->text(), "0.25");
  EXPECT_EQ(term.find("image_view")->text(), "image") << "defaults are written out";
  EXPECT_EQ(term.find("settings"), nullptr);
  const config::ModuleSettings again{"weighted_sum", spelt};
  EXPECT_EQ(config::to_yaml(objectives().resolve(again, "objective").settings), flat) << "the written settings read back";
}

TEST(WeightedSum, EachContrastiveLossHasItsOwnChanceLevel) {
  const auto levels =
      make_objective("weighted_sum", "{objectives: [clip, {name: sparc, label: fine}, {name: siglip}, {name: filip, weight: 0}]}")
          ->chance_levels(64);
  EXPECT_EQ(levels, (std::map<std::string, double>{{"clip.loss_i2t", std::log(64.0)},
                                                   {"clip.loss_t2i", std::log(64.0)},
                                                   {"fine.loss_global", std::log(64.0)}}));
}

TEST(WeightedSum, NeedsWhatItsObjectivesNeed) {
  const Needs needs = make_objective("weighted_sum", "{objectives: [{name: clip}, {name: pacl}]}")->needs();
  EXPECT_EQ(needs.images, (std::map<std::string, ViewNeeds>{{"image", {.tokens = true}}}));
  EXPECT_EQ(needs.texts, (std::map<std::string, ViewNeeds>{{"caption", {}}}));
}

// An objective that records the teacher that it receives.
class Pupil : public Objective {
 public:
  Losses forward(const Features&, const StepContext& context) override {
    teacher = context.teacher;
    return {at::zeros({}), {}, {}};
  }
  Needs needs() const override { return {.images = {{"image", {.teacher = true}}}, .texts = {}}; }
  void after_step(const StepContext& done) override { teacher_after_step = done.teacher; }
  bool follows_step() const override { return true; }
  double teacher_momentum(const StepContext& step) const override { return static_cast<double>(step.step) / 10; }

  const Objective* teacher = nullptr;
  const Objective* teacher_after_step = nullptr;
};

TEST(WeightedSum, TermGetsItsStepAndTeacher) {
  objectives().add<config::NoSettings>(
      "test_pupil", "", [](const config::NoSettings&, const ObjectiveContext&) { return std::make_shared<Pupil>(); });
  const char* yaml = "{objectives: [{name: clip}, {name: test_pupil}]}";
  const auto sum = make_objective("weighted_sum", yaml), teacher = make_objective("weighted_sum", yaml);
  const auto pupil_of = [](const Objective& all) {
    return std::dynamic_pointer_cast<Pupil>(all.named_modules()["objectives.test_pupil"]);
  };
  const Pairs pairs = random_pairs({2, 1}, 2);
  StepContext context;
  context.step = 7;
  sum->forward(pairs.features(), context);
  EXPECT_EQ(pupil_of(*sum)->teacher, nullptr);
  context.teacher = teacher.get();
  sum->forward(pairs.features(), context);
  sum->after_step(context);
  EXPECT_EQ(pupil_of(*sum)->teacher, pupil_of(*teacher).get());
  EXPECT_EQ(pupil_of(*sum)->teacher_after_step, pupil_of(*teacher).get());
  EXPECT_TRUE(sum->follows_step());
  EXPECT_DOUBLE_EQ(sum->teacher_momentum(context), 0.7);
  EXPECT_FALSE(make_objective("weighted_sum", "{objectives: [{name: clip}]}")->follows_step());
}

TEST(WeightedSum, RejectsTermsWithDifferentTeacherMomenta) {
  const auto momentum_of = [](const std::string& other) {
    const std::string small = "out_dim: 4, hidden_dim: 4, bottleneck_dim: 4, teacher_momentum: ";
    const auto sum =
        make_objective("weighted_sum", "{objectives: [{name: clip}, {name: dino, settings: {" + small +
                                           "0.9}}, {name: dino, label: other, settings: {" + small + other + "}}]}");
    return sum->teacher_momentum({.step = 0, .total_steps = 10});
  };
  EXPECT_DOUBLE_EQ(momentum_of("0.9"), 0.9);
  EXPECT_EQ(error_of([&] { momentum_of("0.99"); }),
            "objectives: dino has a teacher momentum of 0.9 at an update, other of 0.99, but they share one teacher: "
            "make them equal");
}

}  // namespace
}  // namespace tessera
