#include <cmath>
#include <csignal>
#include <filesystem>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "src/training/trainer.h"
#include "tests/support/full_disk.h"
#include "tests/support/test_name.h"
#include "tests/training/tiny_run.h"
#include <tessera/base/text.h>
#include <tessera/base/version.h>
#include <tessera/io/atomic_file.h>

namespace tessera {
namespace {

namespace fs = std::filesystem;

Weights weights_at(const std::string& run, std::int64_t step = 6) {
  return checkpoint_of(run, step).model.weights;
}

// Sets step_observer() for one scope.
class ObservedSteps {
 public:
  explicit ObservedSteps(std::function<void(const StepContext&)> observer) { step_observer() = std::move(observer); }
  ~ObservedSteps() { step_observer() = nullptr; }
  ObservedSteps(const ObservedSteps&) = delete;
  ObservedSteps& operator=(const ObservedSteps&) = delete;
};

TEST(Deterministic, AppliesOnlyToTheRunThatSetsIt) {
  const TemporaryFolder folder;
  for (const bool asked : {true, false}) {
    bool seen = false;
    const ObservedSteps observed([&](const StepContext&) {
      seen = true;
      EXPECT_EQ(at::globalContext().deterministicAlgorithms(), asked);
      EXPECT_FALSE(at::globalContext().deterministicAlgorithmsWarnOnly());
    });
    const Config config =
        tiny_config(folder / (asked ? "asked" : "not"),
                    {"training.steps=1", "schedule.warmup_steps=0",
                     asked ? "training.deterministic=true" : "seed=3"}, "test_observed");
    EXPECT_EQ(Trainer(config, "none").run(), Outcome::finished);
    EXPECT_TRUE(seen);
  }
  EXPECT_NE(::getenv("CUBLAS_WORKSPACE_CONFIG"), nullptr);
}

TEST(CudaGraph, IsRejectedOnTheCpu) {
  const TemporaryFolder folder;
  const Config config = tiny_config(folder / "run", {"training.cuda_graph=true"});
  EXPECT_EQ(error_of([&] { Trainer(config, "none"); }), "training.cuda_graph needs a GPU, and this run is on cpu");
}

TEST(CudaGraph, IsRejectedForAnObjectiveThatFollowsTheStep) {
  const TemporaryFolder folder;
  const Config config = tiny_config(folder / "run", {"training.cuda_graph=true"}, "test_not_finite");
  EXPECT_EQ(
      error_of([&] { Trainer(config, "none"); }),
      "training.cuda_graph: the objective test_not_finite depends on the step number, but a recorded step never "
      "changes: set it to false");
}

class TrainerTest : public RunTest, public ::testing::WithParamInterface<const char*> {};

// The run has six steps of 8 samples. An epoch of 40 samples ends after the fifth step, so the resumed run crosses the end of an epoch.
TEST_P(TrainerTest, ResumesBitForBit) {
  const std::vector<std::string> settings = overrides_of(GetParam());
  const std::string whole = train("whole", settings);
  // The second run resumes from the first run's checkpoint of step 3, as if the first run had been killed at that step.
  const std::string broken = train("broken", settings, whole + "/checkpoints/step_0000003");
  const Checkpoint a = checkpoint_of(whole), b = checkpoint_of(broken);
  expect_equal(a.model.weights, b.model.weights);
  expect_equal(a.optimizer, b.optimizer);
  expect_equal(a.ema, b.ema);
  EXPECT_EQ(a.state.samples, b.state.samples);
  const auto full = rows(whole), second = rows(broken);
  ASSERT_EQ(full.size(), 6u);
  ASSERT_EQ(second.size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(full[i + 3]["loss"], second[i]["loss"]);
}

INSTANTIATE_TEST_SUITE_P(Objectives, TrainerTest,
                         ::testing::Values("{name: clip}", "{name: sparc}", "{name: siglip} with siglip", "{name: siglip} with own shapes",
                                           "{name: clip} with dinov3", "{name: sparc} with eva02",
                                           "{name: flair, heads: 2} with captions",
                                           "{name: weighted_sum, objectives: [{name: clip}, {name: superclip}]} with averages",
                                           "{name: text_group, decoder: {context_length: 24}} with groups",
                                           "{name: cosmos, heads: 2, local_crops: 2} with crops and captions",
                                           "{name: weighted_sum, objectives: [{name: siglip}, {name: captioning, decoder: {context_length: 24, layers: 1, heads: 2}}]}",
                                           "{name: weighted_sum, objectives: [{name: siglip, hard_negatives: all}, {name: region_contrast, hard_weight: 0.5, rank_weight: 0.4, text_weight: 1}]} with boxes",
                                           "{name: weighted_sum, objectives: [{name: multi_positive_sigmoid}, {name: superclip, text_view: captions}]} with captions"),
                         test_name<const char*>);

using Training = TrainerTest;

TEST_F(Training, SignalFinishesTheStepAndSavesForResume) {
  const std::string whole = train("whole", {}, "none", "test_observed"), broken = folder_ / "broken";
  const Config config = tiny_config(broken, {"checkpoint.every_steps=0"}, "test_observed");
  {
    Trainer trainer(config, "auto");
    const ObservedSteps observed([](const StepContext& context) {
      if (context.step == 3) ::raise(SIGTERM);  // in the middle of the fourth step
    });
    EXPECT_EQ(trainer.run(), Outcome::interrupted);
    EXPECT_EQ(trainer.stop_signal(), SIGTERM);
    EXPECT_EQ(trainer.state().step, 4) << "the step is finished, and no other is started";
  }
  EXPECT_EQ(CheckpointFolder(broken + "/checkpoints", 9).list(),
            (std::vector<std::string>{broken + "/checkpoints/step_0000004"}));
  Trainer resumed(config, "auto");
  EXPECT_EQ(resumed.state().step, 4);
  EXPECT_EQ(resumed.run(), Outcome::finished);
  expect_equal(weights_at(whole), weights_at(broken));
  const auto all = rows(broken);
  ASSERT_EQ(all.size(), 6u) << "the rows are those of an uninterrupted run";
  for (std::size_t i = 0; i < 6; ++i) EXPECT_EQ(all[i]["step"], i + 1);
}

// The 40 samples of an epoch make five batches.
TEST_F(Training, ObjectiveSeesTheEpochOfItsBatch) {
  std::vector<std::int64_t> steps, epochs;
  const ObservedSteps observed([&](const StepContext& context) {
    steps.push_back(context.step);
    epochs.push_back(context.epoch);
    EXPECT_EQ(context.total_steps, 11);
  });
  const std::vector<std::string> settings{"training.steps=11", "checkpoint={every_steps: 5, keep_last: 9}"};
  train("whole", settings, "none", "test_observed");
  EXPECT_EQ(steps, (std::vector<std::int64_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10}));
  EXPECT_EQ(epochs, (std::vector<std::int64_t>{0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 2}));
  epochs.clear();
  train("broken", settings, folder_ / "whole/checkpoints/step_0000005", "test_observed");
  EXPECT_EQ(epochs, (std::vector<std::int64_t>{1, 1, 1, 1, 1, 2})) << "also after a resume";
}

// Computes the updates by hand and so checks every rate that changes with the step.
TEST_F(Training, UpdateRatesMatchALoopByHand) {
  const std::vector<std::string> settings{
      "optimizer={name: sgd, lr: 0.5, momentum: 0, weight_decay: 0.5, no_decay: []}",
      "schedule={schedule: linear, warmup_steps: 2, weight_decay_end: 0.1}", "training.clip_norm=0.5",
      "training.clip_mode=per_tensor",
      "parameters={groups: [{match: [visual.*], frozen_steps: 3}, {match: [text_projection], lr_scale: 0.5}]}"};
  train("run", settings, "none", "test_distance");

  TrainingRun run = build_training_run(tiny_config(folder_ / "hand", settings, "test_distance"));
  std::int64_t clipped = 0, kept = 0;
  for (std::int64_t step = 0; step < 6; ++step) {
    run.optimizer->zero_grad();
    forward_loss(run, run.loader->next(), "float32", {}).total.backward();
    const double rate =
        step < 2 ? 0.5 * static_cast<double>(step + 1) / 2 : 0.5 * (6.0 - static_cast<double>(step)) / 4;
    const double decay = 0.1 + 0.2 * (1 + std::cos(M_PI * static_cast<double>(step) / 6));
    for (const NamedParameter& each : run.optimizer->parameters()) {
      if (!each.tensor.grad().defined() || (each.name.starts_with("visual.") && step < 3)) continue;
      const double norm = each.tensor.grad().norm().item<double>();
      ++(norm > 0.5 ? clipped : kept);
      at::Tensor move = each.tensor.grad() * std::min(1.0, 0.5 / (norm + 1e-6));
      if (each.tensor.dim() >= 2) move = move + decay * each.tensor.detach();
      each.tensor.detach().sub_(move, rate * (each.name == "text_projection" ? 0.5 : 1.0));
    }
  }
  EXPECT_GT(clipped, 0);
  EXPECT_GT(kept, 0);
  for (const auto& [name, tensor] : weights_at(folder_ / "run"))
    EXPECT_TRUE(at::allclose(tensor, collect_weights(*run.model, *run.objective).at(name), 1e-5, 1e-6)) << name;
}

TEST_F(Training, ResumesBitForBitWhileAParameterIsFrozenAndRatesChange) {
  const std::vector<std::string> settings{"schedule.weight_decay_end=0.9", "training.clip_mode=per_tensor",
                                          "parameters={groups: [{match: [visual.proj], frozen_steps: 4}]}"};
  const std::string whole = train("whole", settings);
  expect_equal(weights_at(whole), weights_at(train("broken", settings, whole + "/checkpoints/step_0000003")));
  const Trainer fresh(tiny_config(folder_ / "fresh", settings), "none");
  const at::Tensor begin = fresh.training_run().model->state_dict().at("visual.proj");
  EXPECT_TRUE(at::equal(weights_at(whole, 3).at("visual.proj"), begin));
  EXPECT_FALSE(at::equal(weights_at(whole).at("visual.proj"), begin));
}

TEST_F(Training, ClippingEachTensorNeedsANorm) {
  EXPECT_EQ(error_of([&] {
              tiny_config(folder_ / "a", {"training.clip_norm=null", "training.clip_mode=per_tensor"});
            }),
            "--set: training.clip_mode: needs training.clip_norm: the maximum norm of each gradient");
}

TEST_F(Training, ResumeDropsRowsAfterTheCheckpoint) {
  const std::string run = train("run");
  fs::remove_all(run + "/checkpoints/step_0000006");
  EXPECT_EQ(rows(run).size(), 6u);
  const Trainer resumed(tiny_config(run), "auto");
  EXPECT_EQ(resumed.state().step, 3);
  EXPECT_EQ(rows(run).size(), 3u);
}

TEST_F(Training, TornNewestCheckpointFallsBackToTheOneBefore) {
  const std::string run = train("run");
  const Weights end = weights_at(run);
  fs::resize_file(run + "/checkpoints/step_0000006/state.safetensors", 100);
  Trainer again(tiny_config(run), "auto");
  EXPECT_EQ(again.state().step, 3);
  EXPECT_EQ(again.run(), Outcome::finished);
  expect_equal(weights_at(run), end);
}

TEST_F(Training, RejectsResumingWithOtherSettings) {
  const std::string run = train("run");
  EXPECT_EQ(
      error_of([&] {
        Trainer(tiny_config(run, {"optimizer.lr=0.5", "model.image.encoder.layers=2"}), "auto");
      }),
      run +
          "/checkpoints/step_0000006: was trained with other settings: model.image.encoder.layers: 1 there, 2 here; "
          "optimizer.lr: 0.01 there, 0.5 here: use the same settings, allow these changes with --allow-changes "
          "model.image.encoder.layers optimizer.lr, or choose another run.folder");
  EXPECT_EQ(error_of([&] { Trainer(tiny_config(run), "none"); }),
            run + ": already holds checkpoints up to step 6: continue with --resume auto, or choose another run.folder");
  EXPECT_EQ(error_of([&] { Trainer(tiny_config(folder_ / "other"), folder_ / "nowhere"); }),
            "--resume " + (folder_ / "nowhere") +
                ": expected auto, none, a run folder or a folder like RUN/checkpoints/step_0001000");
}

// Uses a large eps, because Adam would otherwise scale up the rounding noise in gradients that should be 0, such as those of key biases.
TEST_F(Training, AccumulationMatchesOneLargeBatch) {
  const std::vector<std::string> settings{"training.steps=2", "checkpoint.every_steps=0", "optimizer.eps=0.1"};
  const std::string one = train("one", settings, "none", "test_distance");
  const std::string two =
      train("two", with(settings, {"data.loader.batch_size=4", "training.accumulation=2"}), "none", "test_distance");
  const Weights a = weights_at(one, 2), b = weights_at(two, 2);
  for (const auto& [name, tensor] : a) EXPECT_TRUE(at::allclose(tensor, b.at(name), 1e-4, 1e-5)) << name;
  EXPECT_NEAR(rows(one)[0]["loss"].get<double>(), rows(two)[0]["loss"].get<double>(), 1e-4);
  EXPECT_NEAR(rows(one)[0]["grad_norm"].get<double>(), rows(two)[0]["grad_norm"].get<double>(), 1e-4);
}

TEST_F(Training, FullDiskKeepsTheOldCheckpointAndTheRun) {
  const std::string run = folder_ / "run", whole = train("whole");
  Trainer trainer(tiny_config(run), whole + "/checkpoints/step_0000003");
  const std::string error = error_of([&] {
    const FullDisk full(8192);
    trainer.run();
  });
  EXPECT_TRUE(error.starts_with("step 6 is not saved: ")) << error;
  EXPECT_TRUE(contains(error, "the previous checkpoint is " + whole + "/checkpoints/step_0000003"));
  // The trainer still holds the state in memory, so it can save the state once there is room.
  EXPECT_EQ(trainer.run(), Outcome::finished);
  expect_equal(weights_at(run), weights_at(whole));
}

TEST_F(Training, SavesByTheClock) {
  const std::string run = train("run", {"checkpoint={every_steps: 0, every_minutes: 1.0e-9, keep_last: 9}"});
  EXPECT_EQ(CheckpointFolder(run + "/checkpoints", 9).list().size(), 6u);
}

TEST_F(Training, BackgroundCheckpointsMatchThoseWrittenInPlace) {
  const std::string a = train("a", {"checkpoint.background=true"}), b = train("b", {"checkpoint.background=false"});
  for (const std::int64_t step : {3, 6}) expect_equal(weights_at(a, step), weights_at(b, step));
}

TEST_F(Training, Bf16AutocastTrainsWithFloat32Weights) {
  for (const auto& [name, tensor] : weights_at(train("run", {"training.precision=bf16"}, "none", "sparc")))
    EXPECT_NE(tensor.scalar_type(), at::kBFloat16) << name;
}

TEST_F(Training, WritesTheResolvedConfigurationAndEvaluations) {
  const std::string run = folder_ / "run";
  const Config config = tiny_config(run, {"evaluation.tasks=[{name: zero_shot}]", "evaluation.every_steps=3"});
  Trainer(config, "none").run();
  EXPECT_EQ(io::read_file(run + "/config.yaml"), concat("# ", version_line(), "\n", to_yaml(config)));
  for (const char* step : {"step_0000003", "step_0000006"}) {
    const auto json = nlohmann::json::parse(io::read_file(run + "/evaluation/" + step + ".json"));
    EXPECT_TRUE(json["tasks"][0]["metrics"].contains("top1")) << json.dump();
  }
}

}  // namespace
}  // namespace tessera
