#include <cmath>
#include <filesystem>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "src/training/checkpoint/best_checkpoint.h"
#include "src/training/checkpoint/checkpoint_keeper.h"
#include "src/training/trainer.h"
#include "tests/training/tiny_run.h"
#include <tessera/evaluation/inference.h>
#include <tessera/io/atomic_file.h>

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr const char* kEveryStep = "evaluation={every_steps: 1, tasks: [{name: validation_loss}]}";

/// A fixture for tests that report evaluation results themselves, without training.
class KeepBest : public ::testing::Test {
 protected:
  Config best_config(const std::vector<std::string>& more = {}) {
    const std::vector<std::string> all{kEveryStep, "checkpoint={keep_last: 1, keep_best: {metric: validation_loss.loss}}"};
    return tiny_config(folder_ / "run", with(all, more));
  }

  void open(const Config& config) {
    keeper_.reset();
    config_ = config;
    fs::create_directories(folder_ / "run/checkpoints");
    run_ = build_training_run(config_);
    keeper_ = std::make_unique<CheckpointKeeper>(config_, group_, run_, folder_ / "run", /*separate=*/false, /*mirror=*/nullptr,
                                                 [&](const std::string& text) { errors_.push_back(text); });
  }

  // Reports an evaluation result at this step. As in training, the step's checkpoint is written in the background.
  void measure(std::int64_t step, double value, const std::string& name = "validation_loss.loss") {
    RunState state;
    state.step = step;
    if (keeper_->is_best({{"validation_loss.other", 0}, {name, value}})) keeper_->save_best(state);
  }
  void save(std::int64_t step) {
    RunState state;
    state.step = step;
    keeper_->save(state, /*must=*/true);
  }
  std::string best() {
    if (keeper_) keeper_->wait();
    return fs::path(best_checkpoint_in(folder_ / "run/checkpoints")).filename();
  }
  std::vector<std::string> there() const {
    std::vector<std::string> out;
    for (const std::string& each : CheckpointFolder(folder_ / "run/checkpoints", 9).list())
      out.push_back(fs::path(each).filename());
    return out;
  }

  TemporaryFolder folder_;
  ProcessGroup group_;
  Config config_;
  TrainingRun run_;
  std::unique_ptr<CheckpointKeeper> keeper_;
  std::vector<std::string> errors_;
};

TEST_F(KeepBest, KeepsTheBestWhileOlderOnesAreDeleted) {
  open(best_config());
  save(1);
  measure(1, 3.0);
  save(2);
  measure(2, 1.0);
  for (const std::int64_t step : {3, 4, 5}) {
    save(step);
    measure(step, 2.0);
  }
  EXPECT_EQ(best(), "step_0000002");
  EXPECT_EQ(there(), (std::vector<std::string>{"step_0000002", "step_0000005"})) << "step 1 is no longer the best";
}

TEST_F(KeepBest, SavesABestStepThatHasNoCheckpoint) {
  open(best_config());
  measure(1, 1.0);
  EXPECT_EQ(best(), "step_0000001");
  EXPECT_EQ(load_checkpoint(folder_ / "run/checkpoints/step_0000001").state.step, 1);
}

TEST_F(KeepBest, NamesTheBestAtOnceSoThatAKilledRunRemembersIt) {
  open(best_config());
  RunState state;
  state.step = 1;
  keeper_->save(state, /*must=*/false);
  measure(1, 1.0);
  EXPECT_EQ(fs::path(best_checkpoint_in(folder_ / "run/checkpoints")).filename(), "step_0000001");
}

TEST_F(KeepBest, JudgesARecordedEvaluationAfterAResume) {
  const Config config = best_config({"checkpoint.every_steps=0"});
  EXPECT_EQ(Trainer(config, "none").run(), Outcome::finished);
  const std::string last = fs::path(CheckpointFolder(folder_ / "run/checkpoints", 9).list().back()).filename();
  fs::remove(folder_ / "run/checkpoints/best");  // as if the process had been killed before it wrote this file
  EXPECT_EQ(Trainer(config, "auto").run(), Outcome::finished);
  EXPECT_EQ(best(), last);
}

TEST_F(KeepBest, NeverPrefersANonFiniteValue) {
  open(best_config());
  measure(1, NAN);
  EXPECT_EQ(best(), "");
  measure(2, 5.0);
  measure(3, NAN);
  measure(4, -INFINITY);
  EXPECT_EQ(best(), "step_0000002");
}

TEST_F(KeepBest, RemembersTheBestAfterAResume) {
  open(best_config());
  save(1);
  measure(1, 1.0);
  save(2);
  open(best_config());
  keeper_->resumed_from(folder_ / "run/checkpoints/step_0000002", 2);
  measure(3, 2.0);
  EXPECT_EQ(best(), "step_0000001");
  measure(4, 0.5);
  EXPECT_EQ(best(), "step_0000004");
}

TEST_F(KeepBest, StartsOverForAnotherMetric) {
  open(best_config());
  measure(1, 1.0);
  EXPECT_EQ(best(), "step_0000001");
  open(best_config({"checkpoint.keep_best.metric=validation_loss.other_loss"}));
  keeper_->resumed_from(folder_ / "run/checkpoints/step_0000001", 1);
  measure(2, 7.0, "validation_loss.other_loss");
  EXPECT_EQ(best(), "step_0000002");
}

TEST_F(KeepBest, TakesTheModeFromTheMetricNameUnlessItIsSet) {
  EXPECT_FALSE(greater_is_better({.metric = "validation_loss.loss_contrastive"}));
  EXPECT_FALSE(greater_is_better({.metric = "fgovd.mean_rank"}));
  EXPECT_FALSE(greater_is_better({.metric = "depth_probe.rms_error"}));
  EXPECT_TRUE(greater_is_better({.metric = "zero_shot.top1"}));
  EXPECT_FALSE(greater_is_better({.metric = "zero_shot.top1", .mode = "min"}));
  open(best_config({"checkpoint.keep_best.mode=max"}));
  measure(1, 1.0);
  measure(2, 3.0);
  measure(3, 2.0);
  EXPECT_EQ(best(), "step_0000002");
}

TEST_F(KeepBest, ReportsAnUnknownMetricOnceWithTheMeasuredOnes) {
  open(best_config({"checkpoint.keep_best.metric=validation_loss.lss"}));
  measure(1, 1.0);
  measure(2, 1.0);
  ASSERT_EQ(errors_.size(), 1u);
  EXPECT_EQ(errors_[0],
            "checkpoint.keep_best.metric: there is no metric called validation_loss.lss: did you mean "
            "validation_loss.loss?; measured: validation_loss.other and validation_loss.loss");
}

TEST_F(KeepBest, RejectsAMetricWithoutATaskAtTheStart) {
  EXPECT_EQ(error_of([&] { best_config({"checkpoint.keep_best.metric=retrieval.image_to_text_recall@1"}); }),
            "--set: checkpoint.keep_best.metric: is retrieval.image_to_text_recall@1, but no task of evaluation.tasks is "
            "called retrieval: they are validation_loss");
  EXPECT_EQ(error_of([&] { best_config({"evaluation.tasks=[]"}); }),
            "--set: checkpoint.keep_best.metric: is validation_loss.loss, but evaluation.tasks is empty: nothing is "
            "measured");
  EXPECT_EQ(error_of([&] { best_config({"checkpoint.keep_best.metric=recall"}); }),
            "--set: checkpoint.keep_best.metric: expected TASK.METRIC, say validation_loss.loss, got recall");
  EXPECT_EQ(error_of([&] { best_config({"evaluation.every_steps=0"}); }),
            "--set: checkpoint.keep_best.metric: is set, but evaluation.every_steps is 0, so only the final state is "
            "measured: set it");
}

TEST_F(KeepBest, BestCanBeEvaluatedAndResumed) {
  const Config config = best_config({"checkpoint.every_steps=0"});
  EXPECT_EQ(Trainer(config, "none").run(), Outcome::finished);
  double least = INFINITY;
  std::string step;
  for (const auto& file : fs::directory_iterator(folder_ / "run/evaluation")) {
    const auto json = nlohmann::json::parse(io::read_file(file.path().string()));
    const double loss = json["tasks"][0]["metrics"]["loss"];
    if (loss < least) step = file.path().stem();
    least = std::min(least, loss);
  }
  EXPECT_EQ(best(), step);
  const std::string named = folder_ / "run/checkpoints/best";
  EXPECT_EQ(load_for_inference(named, "cpu").path, folder_ / ("run/checkpoints/" + step + "/model.safetensors"));
  Config other = config;
  other.run.folder = folder_ / "other";
  const Trainer resumed(other, named);
  EXPECT_EQ(step_folder_name(resumed.state().step), step);
}

}  // namespace
}  // namespace tessera
