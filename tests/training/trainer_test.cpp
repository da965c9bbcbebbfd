#include <atomic>
#include <csignal>
#include <filesystem>
#include <sys/resource.h>
#include <thread>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/training/tiny_run.h"
#include <tessera/base/text.h>
#include <tessera/io/atomic_file.h>
#include <tessera/training/trainer.h>

namespace tessera {
namespace {

namespace fs = std::filesystem;

using Weights = std::map<std::string, at::Tensor>;

Weights weights_at(const std::string& run, const std::string& step) {
  return load_checkpoint(run + "/checkpoints/" + step).model.weights;
}

void expect_equal(const Weights& a, const Weights& b) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [name, tensor] : a) EXPECT_TRUE(at::equal(tensor, b.at(name))) << name;
}

TEST(CudaGraph, IsRefusedOnTheCpu) {
  const TemporaryFolder folder;
  const Config config = tiny_config(folder / "run", {"training.cuda_graph=true"});
  EXPECT_EQ(error_of([&] { Trainer(config, "none"); }), "training.cuda_graph needs a GPU, and this run is on cpu");
}

class TrainerTest : public ::testing::TestWithParam<const char*> {
 protected:
  TemporaryFolder folder_;
};

// Six steps of 8 samples cross the end of the first epoch of 40, so the resume is in the middle of things.
TEST_P(TrainerTest, ResumedRunEndsBitForBitLikeAnUnbrokenOne) {
  const std::string objective = GetParam();
  const std::string whole = folder_ / "whole", broken = folder_ / "broken";
  EXPECT_EQ(Trainer(tiny_config(whole, {}, objective), "none").run(), Outcome::finished);
  // The second run starts from the first one's checkpoint after step 3, as if it had been killed there.
  EXPECT_EQ(Trainer(tiny_config(broken, {}, objective), whole + "/checkpoints/step_0000003").run(), Outcome::finished);
  expect_equal(weights_at(whole, "step_0000006"), weights_at(broken, "step_0000006"));
  const Checkpoint a = load_checkpoint(whole + "/checkpoints/step_0000006"),
                   b = load_checkpoint(broken + "/checkpoints/step_0000006");
  expect_equal(a.optimizer, b.optimizer);
  EXPECT_EQ(a.state.samples, b.state.samples);
  const auto full = rows(whole), second = rows(broken);
  ASSERT_EQ(full.size(), 6u);
  ASSERT_EQ(second.size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(full[i + 3]["loss"], second[i]["loss"]);
}

INSTANTIATE_TEST_SUITE_P(Objectives, TrainerTest, ::testing::Values("clip", "sparc"));

using Training = TrainerTest;

TEST_F(Training, SignalFinishesTheStepSavesAndAutoResumeGoesOn) {
  const std::string whole = folder_ / "whole", broken = folder_ / "broken";
  Trainer(tiny_config(whole), "none").run();
  {
    Trainer trainer(tiny_config(broken, {"checkpoint.every_steps=0"}), "auto");
    std::atomic<bool> done{false};
    // run() installs the handler; the signal may come at any step, the end must be the same.
    std::thread sender([&] {
      while (!done && !fs::exists(broken + "/metrics.jsonl")) std::this_thread::yield();
      while (!done && fs::file_size(broken + "/metrics.jsonl") == 0) std::this_thread::yield();
      if (!done) ::kill(::getpid(), SIGTERM);
    });
    std::signal(SIGTERM, SIG_IGN);
    const Outcome outcome = trainer.run();
    done = true;
    sender.join();
    EXPECT_NE(outcome, Outcome::not_finite);
  }
  EXPECT_EQ(Trainer(tiny_config(broken, {"checkpoint.every_steps=0"}), "auto").run(), Outcome::finished);
  expect_equal(weights_at(whole, "step_0000006"), weights_at(broken, "step_0000006"));
  const auto all = rows(broken);
  ASSERT_EQ(all.size(), 6u) << "the rows read as if the run had never stopped";
  for (std::size_t i = 0; i < 6; ++i) EXPECT_EQ(all[i]["step"], i + 1);
}

TEST_F(Training, RowsOfStepsAfterTheCheckpointAreDroppedOnResume) {
  const std::string run = folder_ / "run";
  Trainer(tiny_config(run), "none").run();
  fs::remove_all(run + "/checkpoints/step_0000006");
  EXPECT_EQ(rows(run).size(), 6u);
  const Trainer resumed(tiny_config(run), "auto");
  EXPECT_EQ(resumed.state().step, 3);
  EXPECT_EQ(rows(run).size(), 3u);
}

TEST_F(Training, TornNewestCheckpointFallsBackToTheOneBefore) {
  const std::string run = folder_ / "run";
  Trainer(tiny_config(run), "none").run();
  const Weights end = weights_at(run, "step_0000006");
  fs::resize_file(run + "/checkpoints/step_0000006/state.safetensors", 100);
  Trainer again(tiny_config(run), "auto");
  EXPECT_EQ(again.state().step, 3);
  EXPECT_EQ(again.run(), Outcome::finished);
  expect_equal(weights_at(run, "step_0000006"), end);
}

TEST_F(Training, ResumeWithOtherSettingsIsRefused) {
  const std::string run = folder_ / "run";
  Trainer(tiny_config(run), "none").run();
  EXPECT_EQ(
      error_of([&] {
        Trainer(tiny_config(run, {"optimizer.lr=0.5", "model.image.encoder.layers=2"}), "auto");
      }),
      run +
          "/checkpoints/step_0000006: was trained with other settings: model.image.encoder.layers: 1 there, 2 here; "
          "optimizer.lr: 0.01 there, 0.5 here: give the same ones, or choose another run.folder");
  EXPECT_EQ(error_of([&] { Trainer(tiny_config(run), "none"); }),
            run + ": already holds checkpoints up to step 6: go on with --resume auto, or choose another run.folder");
  EXPECT_EQ(error_of([&] { Trainer(tiny_config(folder_ / "other"), folder_ / "nowhere"); }),
            "--resume " + (folder_ / "nowhere") +
                ": expected auto, none, a run folder or a folder like RUN/checkpoints/step_0001000");
}

// A large eps: without it Adam would blow rounding in gradients that are zero in theory (key biases) up to whole steps.
TEST_F(Training, AccumulatedMicroBatchesGiveTheUpdateOfOneBigBatch) {
  const std::string one = folder_ / "one", two = folder_ / "two";
  Trainer(tiny_config(one, {"training.steps=2", "checkpoint.every_steps=0", "optimizer.eps=0.1"}, "test_distance"), "none").run();
  Trainer(
      tiny_config(
          two, {"training.steps=2", "checkpoint.every_steps=0", "optimizer.eps=0.1", "data.loader.batch_size=4", "training.accumulation=2"},
          "test_distance"),
      "none")
      .run();
  const Weights a = weights_at(one, "step_0000002"), b = weights_at(two, "step_0000002");
  for (const auto& [name, tensor] : a) EXPECT_TRUE(at::allclose(tensor, b.at(name), 1e-4, 1e-5)) << name;
  EXPECT_NEAR(rows(one)[0]["loss"].get<double>(), rows(two)[0]["loss"].get<double>(), 1e-4);
  EXPECT_NEAR(rows(one)[0]["grad_norm"].get<double>(), rows(two)[0]["grad_norm"].get<double>(), 1e-4);
}

TEST_F(Training, FullDiskCostsNeitherTheOldCheckpointNorTheRun) {
  const std::string run = folder_ / "run", whole = folder_ / "whole";
  Trainer(tiny_config(whole), "none").run();
  std::signal(SIGXFSZ, SIG_IGN);
  Trainer trainer(tiny_config(run), whole + "/checkpoints/step_0000003");
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  rlimit small = before;
  small.rlim_cur = 8192;
  setrlimit(RLIMIT_FSIZE, &small);
  const std::string error = error_of([&] { trainer.run(); });
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_TRUE(error.starts_with("step 6 is not saved: ")) << error;
  EXPECT_NE(error.find("the checkpoint before is " + whole + "/checkpoints/step_0000003"), std::string::npos) << error;
  // The state is still in memory: with room again the same trainer saves it.
  EXPECT_EQ(trainer.run(), Outcome::finished);
  expect_equal(weights_at(run, "step_0000006"), weights_at(whole, "step_0000006"));
}

TEST_F(Training, SavesByTheClockToo) {
  const std::string run = folder_ / "run";
  Trainer(tiny_config(run, {"checkpoint={every_steps: 0, every_minutes: 1.0e-9, keep_last: 9}"}), "none").run();
  EXPECT_EQ(CheckpointFolder(run + "/checkpoints", 9).list().size(), 6u);
}

TEST_F(Training, CheckpointsWrittenInTheBackgroundAreThoseWrittenInPlace) {
  const std::string a = folder_ / "a", b = folder_ / "b";
  Trainer(tiny_config(a, {"checkpoint.background=true"}), "none").run();
  Trainer(tiny_config(b, {"checkpoint.background=false"}), "none").run();
  for (const char* step : {"step_0000003", "step_0000006"}) expect_equal(weights_at(a, step), weights_at(b, step));
}

TEST_F(Training, Bf16AutocastTrainsWithFloat32Weights) {
  const std::string run = folder_ / "run";
  EXPECT_EQ(Trainer(tiny_config(run, {"training.precision=bf16"}, "sparc"), "none").run(), Outcome::finished);
  for (const auto& [name, tensor] : weights_at(run, "step_0000006"))
    EXPECT_NE(tensor.scalar_type(), at::kBFloat16) << name;
}

TEST_F(Training, WritesTheResolvedConfigurationAndEvaluations) {
  const std::string run = folder_ / "run";
  const Config config = tiny_config(run, {"evaluation.tasks=[{name: zero_shot}]", "evaluation.every_steps=3"});
  Trainer(config, "none").run();
  EXPECT_EQ(io::read_file(run + "/config.yaml"), to_yaml(config));
  for (const char* step : {"step_0000003", "step_0000006"}) {
    const auto json = nlohmann::json::parse(io::read_file(run + "/evaluation/" + step + ".json"));
    EXPECT_TRUE(json["results"][0]["metrics"].contains("top1")) << json.dump();
  }
}

}  // namespace
}  // namespace tessera
