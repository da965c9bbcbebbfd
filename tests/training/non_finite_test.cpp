#include <filesystem>
#include <limits>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "src/optim/adamw.h"
#include "src/optim/lamb.h"
#include "src/optim/lion.h"
#include "src/optim/muon.h"
#include "src/optim/sgd.h"
#include "src/training/non_finite/non_finite.h"
#include "src/training/trainer.h"
#include "tests/support/device_reads.h"
#include "tests/training/tiny_run.h"
#include <tessera/base/text.h>
#include <tessera/io/atomic_file.h>

namespace tessera {
namespace {

namespace fs = std::filesystem;

using NonFinite = RunTest;

TEST_F(NonFinite, StopsAndSavesTheStateBeforeTheBadStep) {
  const std::string run = folder_ / "run";
  Trainer trainer(tiny_config(run, {"objective.from=4", "training.ema={}"}, "test_not_finite"), "none");
  EXPECT_EQ(trainer.run(), Outcome::not_finite);
  EXPECT_EQ(trainer.state().step, 4);
  const std::string log = io::read_file(run + "/log.txt");
  EXPECT_TRUE(contains(log, "step 5: not finite: loss nan, loss_distance "));
  EXPECT_TRUE(contains(log, "; stopped. Last good checkpoint: " + run + "/checkpoints/step_0000003"));
  EXPECT_TRUE(contains(log, "step 5: aten::log gave NaN (1 of 1 values, [] Float) in the forward pass"));
  EXPECT_TRUE(contains(log, "to examine it again: trainer --config " + run + "/config.yaml --replay-step " + run +
                                "/non_finite/step_0000004"));
  EXPECT_FALSE(fs::exists(run + "/checkpoints/step_0000005"));
  const auto incidents = json_lines(run + "/non_finite.jsonl");
  ASSERT_EQ(incidents.size(), 1u);
  EXPECT_EQ(incidents[0]["step"], 5);
  EXPECT_EQ(incidents[0]["samples"].size(), 8u);

  const std::string good = train("good", {"checkpoint.every_steps=4", "training.ema={}"}, "none", "test_distance");
  const Checkpoint met = load_checkpoint(run + "/non_finite/step_0000004"),
                   expected = checkpoint_of(good, 4);
  expect_equal(met.model.weights, expected.model.weights);
  expect_equal(met.optimizer, expected.optimizer);
  expect_equal(met.ema, expected.ema);
  EXPECT_EQ(met.state.data.cursor, expected.state.data.cursor);
}

TEST_F(NonFinite, ReplayNamesTheFirstBadOperatorAndTheSamples) {
  const std::string run = folder_ / "run";
  const Config config = tiny_config(run, {"objective.from=4"}, "test_not_finite");
  Trainer(config, "none").run();
  const auto [report, finite] = replay_step(config, run + "/non_finite/step_0000004", {});
  EXPECT_FALSE(finite);
  EXPECT_TRUE(report.starts_with("step 5: loss nan, loss_distance ")) << report;
  EXPECT_TRUE(contains(report, "first not finite: aten::log gave NaN"));
  for (const auto& key : json_lines(run + "/non_finite.jsonl")[0]["samples"])
    EXPECT_TRUE(contains(report, key.get<std::string>()));
  const auto [good, is_good] = replay_step(config, run + "/checkpoints/step_0000003", {});
  EXPECT_TRUE(is_good) << good;
  EXPECT_EQ(error_of([&] { replay_step(config, run, {}); }),
            "--replay-step " + run + ": not a saved state: expected a folder like RUN/non_finite/step_0001000");
}

TEST_F(NonFinite, TheSavedStateHasTheTemperatureBeforeItWasClamped) {
  const std::string run = folder_ / "run";
  const Config config = tiny_config(run);
  Trainer trainer(config, "none");
  {
    const at::NoGradGuard no_grad;
    objective_state(*trainer.training_run().objective).at("logit_scale").fill_(100);
  }
  EXPECT_EQ(trainer.run(), Outcome::not_finite);
  EXPECT_TRUE(contains(io::read_file(run + "/log.txt"), "step 1: aten::exp gave infinity"));
  EXPECT_EQ(load_checkpoint(run + "/non_finite/step_0000000").model.weights.at("logit_scale").item<double>(), 100);
  const auto [report, finite] = replay_step(config, run + "/non_finite/step_0000000", {});
  EXPECT_FALSE(finite);
  EXPECT_TRUE(contains(report, "first not finite: aten::exp gave infinity")) << report;
}

TEST_F(NonFinite, ReplayNamesWeightsThatWereBadBefore) {
  const Config config = tiny_config(folder_ / "run", {"checkpoint.every_steps=3", "training.steps=3"}, "test_distance");
  Trainer(config, "none").run();
  const std::string folder = folder_ / "run/checkpoints";
  Checkpoint checkpoint = load_checkpoint(folder + "/step_0000003");
  checkpoint.model.weights.at("text_projection").view(-1)[3] = std::numeric_limits<double>::infinity();
  CheckpointFolder(folder, 3).save(checkpoint);
  const std::string report = replay_step(config, folder + "/step_0000003", {}).first;
  EXPECT_TRUE(contains(report, "first not finite: already not finite before the step: text_projection"));
}

TEST_F(NonFinite, SkippedStepKeepsWeightsAndMomentsAndTheRunContinues) {
  const std::string run = folder_ / "run";
  Trainer trainer(tiny_config(run,
                              {"objective={from: 2, until: 3}", "training.non_finite=skip", "checkpoint.every_steps=1",
                               "checkpoint.keep_last=9"},
                              "test_not_finite"),
                  "none");
  EXPECT_EQ(trainer.run(), Outcome::finished);
  EXPECT_EQ(trainer.state().skipped, 1);
  const Checkpoint before = checkpoint_of(run, 2), after = checkpoint_of(run, 3), end = checkpoint_of(run);
  expect_equal(before.model.weights, after.model.weights);
  expect_equal(before.optimizer, after.optimizer);
  EXPECT_EQ(after.state.step, 3);
  EXPECT_EQ(after.state.data.cursor, 24) << "the data cursor advances";
  EXPECT_EQ(end.optimizer.at("step").item<std::int64_t>(), 5);
  const auto rows = json_lines(run + "/metrics.jsonl");
  ASSERT_EQ(rows.size(), 6u);
  EXPECT_TRUE(rows[2]["loss"].is_null());
  EXPECT_FALSE(rows[3]["loss"].is_null());
  EXPECT_EQ(json_lines(run + "/non_finite.jsonl")[0]["step"], 3);
  EXPECT_TRUE(fs::exists(run + "/non_finite/step_0000002/manifest.json"));
}

// The loss of a non-finite step may be read back some steps later. The trainer then repeats these steps, which must not change the result.
TEST_F(NonFinite, SkippingDoesNotDependOnHowOftenLossesAreReadBack) {
  for (const char* precision : {"float32", "fp16"}) {
    const auto train = [&](const std::string& name, const std::string& every) {
      const std::string run = folder_ / (std::string(precision) + name);
      Trainer trainer(tiny_config(run,
                                  {"objective={from: 2, until: 4}", "training.non_finite=skip", "training.ema={}",
                                   "training.steps=9", "checkpoint.every_steps=9", "log.every_steps=" + every,
                                   std::string("training.precision=") + precision},
                                  "test_not_finite"),
                      "none");
      EXPECT_EQ(trainer.run(), Outcome::finished);
      EXPECT_EQ(trainer.state().skipped, 2);
      return checkpoint_of(run, 9);
    };
    const Checkpoint often = train("often", "1"), seldom = train("seldom", "9");
    expect_equal(often.model.weights, seldom.model.weights);
    expect_equal(often.optimizer, seldom.optimizer);
    expect_equal(often.ema, seldom.ema);
    EXPECT_EQ(often.state.data.cursor, seldom.state.data.cursor);
    EXPECT_EQ(often.state.samples, seldom.state.samples);
    EXPECT_EQ(often.state.loss_scale.scale, seldom.state.loss_scale.scale);
    EXPECT_EQ(often.state.loss_scale.good_steps, seldom.state.loss_scale.good_steps);
    EXPECT_EQ(io::read_file(folder_ / (std::string(precision) + "often/non_finite.jsonl")),
              io::read_file(folder_ / (std::string(precision) + "seldom/non_finite.jsonl")));
  }
}

TEST_F(NonFinite, ListsSamplesWhoseNamesAreNotUtf8) {
  fs::create_directories(folder_ / "pictures/class");
  for (const std::string name : {"caf\xe9.jpg", "th\xe9.jpg"})
    fs::copy_file(TESSERA_SOURCE_DIR "/tests/data/images/small_grey.jpg", folder_ / "pictures/class/" + name);
  const std::string run = train("run",
                                {"data.train={name: image_folder, path: " + (folder_ / "pictures") + "}", "data.loader.batch_size=2",
                                 "objective={from: 0, until: 1}", "training.non_finite=skip", "training.steps=2"},
                                "none", "test_not_finite");
  EXPECT_EQ(json_lines(run + "/non_finite.jsonl").at(0)["samples"].size(), 2u);
}

TEST_F(NonFinite, RunWithASkippedStepResumesBitForBit) {
  const std::vector<std::string> settings{"objective={from: 2, until: 3}", "training.non_finite=skip"};
  const std::string whole = train("whole", settings, "none", "test_not_finite");
  const Checkpoint a = checkpoint_of(whole),
                   b = checkpoint_of(train("broken", settings, whole + "/checkpoints/step_0000003", "test_not_finite"));
  expect_equal(a.model.weights, b.model.weights);
  EXPECT_EQ(b.state.skipped, 1);
}

TEST_F(NonFinite, TenSkippedStepsInARowStopTheRun) {
  const std::string run = folder_ / "run";
  Trainer trainer(
      tiny_config(run, {"objective.from=2", "training.non_finite=skip", "training.steps=30"}, "test_not_finite"),
      "none");
  EXPECT_EQ(trainer.run(), Outcome::not_finite);
  EXPECT_TRUE(contains(io::read_file(run + "/log.txt"), "10 steps in a row were not finite: stopped"));
}

TEST_F(NonFinite, Fp16TrainsWithALossScaleThatResumes) {
  const std::string run = train("run", {"training.precision=fp16"}), plain = train("plain");
  const Checkpoint end = checkpoint_of(run);
  EXPECT_EQ(end.state.loss_scale.scale * std::pow(2.0, 6 - end.optimizer.at("step").item<double>()), 65536);
  const auto a = json_lines(run + "/metrics.jsonl"), b = json_lines(plain + "/metrics.jsonl");
  EXPECT_NEAR(a[0]["loss"].get<double>(), b[0]["loss"].get<double>(), 5e-3);
  const std::string again = train("again", {"training.precision=fp16"}, run + "/checkpoints/step_0000003");
  expect_equal(checkpoint_of(again).model.weights, end.model.weights);
}

TEST(GradScalerTest, HalvesOnOverflowAndDoublesAfter2000GoodSteps) {
  GradScaler scale(true);
  const auto settle = [&](bool finite, bool ignored = false) {
    scale.settle(at::full({}, !finite, at::kBool), at::full({}, ignored, at::kBool));
  };
  at::Tensor gradient = at::full({2}, 65536.0);
  scale.unscale({gradient});
  EXPECT_TRUE(at::equal(gradient, at::ones({2})));
  settle(false);
  EXPECT_EQ(scale.state().scale, 32768);
  for (int i = 0; i < 1999; ++i) settle(true);
  EXPECT_EQ(scale.state().scale, 32768);
  EXPECT_EQ(scale.state().good_steps, 1999);
  settle(false, /*ignored=*/true);
  EXPECT_EQ(scale.state().good_steps, 1999);
  settle(true);
  EXPECT_EQ(scale.state().scale, 65536);
  EXPECT_EQ(scale.state().good_steps, 0);
  for (int i = 0; i < 40; ++i) settle(false);
  EXPECT_EQ(scale.state().scale, 1);
  EXPECT_FALSE(scale.can_shrink().item<bool>());
  scale.restore({4096, 7});
  EXPECT_EQ(scale.scale().item<float>(), 4096);
  EXPECT_EQ(scale.state().good_steps, 7);
  EXPECT_FALSE(GradScaler(false).scale().defined());
}

TEST(NonFiniteGuardTest, DistinguishesAnOverflowFromABadLoss) {
  GradScaler scale(true);
  NonFiniteGuard guard({}, scale);
  const double inf = std::numeric_limits<double>::infinity();
  using Decision = NonFiniteGuard::StepDecision;
  const auto check = [&](double loss, double norm) {
    return static_cast<Decision>(guard.check(at::tensor({loss, norm})).item<int>());
  };
  EXPECT_EQ(check(1, 2), Decision::update);
  EXPECT_EQ(check(1, inf), Decision::overflow);
  EXPECT_EQ(guard.found_inf().item<float>(), 1);
  EXPECT_EQ(scale.state().scale, 32768);
  EXPECT_EQ(check(1, 2), Decision::update) << "an overflow costs one step";
  EXPECT_EQ(guard.found_inf().item<float>(), 0);
  EXPECT_EQ(check(inf, inf), Decision::halted);
  EXPECT_EQ(scale.state().scale, 16384);
  EXPECT_EQ(check(1, inf), Decision::halted);
  EXPECT_EQ(scale.state().scale, 16384) << "discarded steps do not change the scale";
  guard.go_on();
  EXPECT_EQ(check(1, 2), Decision::update);
}

// Loss scaling in fp16 and the skipping of bad steps are decided on the device, so a step never waits for the device.
TEST(NonFiniteGuardTest, StepReadsNothingBack) {
  GradScaler scale(true);
  const at::Tensor weight = at::ones({4, 3}), mean = at::ones({3});
  NonFiniteGuard guard({mean}, scale);
  AdamW optimizer({{"w", weight}}, AdamWSettings{.update_clipping = true});
  Ema ema({{"w", weight}}, EmaSettings{});
  const DeviceReads reads;
  for (const double norm : {1.0, std::numeric_limits<double>::infinity()}) {
    guard.begin();
    weight.mutable_grad() = at::full({4, 3}, norm);
    scale.unscale({weight.grad()});
    guard.check(at::full({2}, norm));
    optimizer.step(0.1, {}, guard.found_inf());
    guard.keep_buffers();
    ema.update(1, guard.found_inf());
  }
  EXPECT_EQ(reads.count(), 0);
}

TEST(NonFiniteGuardTest, StopHaltsForGoodAndKeepsTheBuffers) {
  GradScaler scale(false);
  const at::Tensor mean = at::ones({3});
  NonFiniteGuard guard({mean}, scale);
  guard.begin();
  mean.fill_(2);
  guard.check(at::tensor({1.0, 1.0}));
  guard.keep_buffers();
  EXPECT_EQ(guard.found_inf().item<float>(), 0);
  EXPECT_EQ(mean[0].item<float>(), 2);
  guard.begin();
  mean.fill_(std::numeric_limits<double>::quiet_NaN());
  guard.check(at::tensor({std::numeric_limits<double>::quiet_NaN(), 1.0}));
  guard.keep_buffers();
  EXPECT_EQ(mean[0].item<float>(), 2);
  guard.begin();
  guard.check(at::tensor({1.0, 1.0}));
  EXPECT_EQ(guard.found_inf().item<float>(), 1) << "good steps after a bad one do not change anything";
}

template <class O, class Settings>
void expect_halted_step_changes_nothing(const Settings& settings, bool rounded = false) {
  const at::Tensor weight = at::ones({4, 3});
  O optimizer({{"w", weight}}, settings);
  if (rounded) optimizer.round_moments(1);
  weight.mutable_grad() = at::full({4, 3}, 0.5);
  optimizer.step(0.1, {}, at::zeros({}));
  std::map<std::string, at::Tensor> before = optimizer.state();
  for (auto& [name, tensor] : before) tensor = tensor.clone();
  const at::Tensor kept = weight.clone();
  EXPECT_LT(kept[0][0].template item<float>(), 1);
  weight.mutable_grad() = at::full({4, 3}, std::numeric_limits<double>::quiet_NaN());
  {
    const DeviceReads reads;
    optimizer.step(0.1, {}, at::ones({}));
    EXPECT_EQ(reads.count(), 0) << "on a GPU the step would wait for the device";
  }
  optimizer.take_back(1);
  EXPECT_TRUE(at::equal(weight, kept));
  for (const auto& [name, tensor] : optimizer.state()) EXPECT_TRUE(at::equal(tensor, before.at(name))) << name;
}

TEST(HaltedStep, ChangesNeitherWeightsNorMoments) {
  expect_halted_step_changes_nothing<AdamW>(AdamWSettings{});
  expect_halted_step_changes_nothing<AdamW>(AdamWSettings{.update_clipping = true});
  expect_halted_step_changes_nothing<Sgd>(SgdSettings{});
  expect_halted_step_changes_nothing<Lamb>(LambSettings{});
  expect_halted_step_changes_nothing<Lion>(LionSettings{});
  expect_halted_step_changes_nothing<Muon>(MuonSettings{});
  expect_halted_step_changes_nothing<AdamW>(AdamWSettings{}, /*rounded=*/true);
  expect_halted_step_changes_nothing<Muon>(MuonSettings{}, /*rounded=*/true);
}

TEST(AnomalyDetectorTest, NamesTheOperatorsOfTheFirstInfinityAndTheFirstNan) {
  const at::Tensor weight = at::full({2, 3}, -1.0).requires_grad_();
  const AnomalyDetector watch({{"layer.weight", weight}});
  const at::Tensor big = at::exp(weight * -1000.0);
  const at::Tensor nothing = big - big;
  const at::Tensor more = nothing + at::log(weight);
  EXPECT_EQ(watch.report(),
            "aten::exp gave infinity (6 of 6 values, [2, 3] Float) in the forward pass, after layer.weight; "
            "aten::sub gave NaN (6 of 6 values, [2, 3] Float) in the forward pass, after layer.weight");
}

TEST(AnomalyDetectorTest, NamesTheNodeOfTheBackwardPass) {
  const at::Tensor weight = at::zeros({2}).requires_grad_();
  const AnomalyDetector watch({{"layer.weight", weight}});
  at::sqrt(weight).sum().backward();
  EXPECT_TRUE(contains(watch.report(), "in the backward pass (SqrtBackward0)"));
}

TEST(AnomalyDetectorTest, IgnoresMasksOfInfinity) {
  const AnomalyDetector watch({});
  const at::Tensor scores =
      at::zeros({2, 2}).masked_fill(at::eye(2).to(at::kBool), -std::numeric_limits<double>::infinity());
  at::softmax(scores, 1);
  EXPECT_EQ(watch.report(), "");
}

}  // namespace
}  // namespace tessera
