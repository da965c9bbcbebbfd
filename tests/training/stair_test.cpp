#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "src/training/stages.h"
#include "tests/training/stair_run.h"
#include "tests/training/tiny_run.h"
#include <tessera/io/atomic_file.h>

namespace tessera {
namespace {

class StairTraining : public RunTest {
 protected:
  // Builds the run of a stage and loads the stage's final weights.
  static TrainingRun run_of(const Config& config) {
    TrainingRun run = build_training_run(config);
    Config start = config;
    start.start = {.weights = config::FilePath{*config.run.folder}};
    load_initial_weights(run, start);
    return run;
  }
  static Features encode(TrainingRun& run, const Batch& batch) {
    const at::NoGradGuard no_grad;
    run.model->eval();
    return encode_batch(run, batch, "float32");
  }
};

TEST_F(StairTraining, SpecialTokensAreNeverActive) {
  TrainingRun run = build_training_run(stair_config(folder_ / "run"));
  EXPECT_EQ(*run.model->shared().special_token_ids, (std::vector<std::int64_t>{1, 2}));
  const Features features = encode(run, run.loader->next());
  for (const at::Tensor& encoding : {features.image().global, features.text().global}) {
    EXPECT_EQ(encoding.size(1), 64);
    EXPECT_GT(encoding.select(1, 3).abs().sum().item<double>() + encoding.select(1, 4).abs().sum().item<double>(), 0);
    EXPECT_EQ(encoding.narrow(1, 1, 2).abs().sum().item<double>(), 0);
  }
}

TEST_F(StairTraining, StageTwoKeepsImageEncodingsAndChangesTexts) {
  const std::string path = folder_ / "run.yaml";
  io::write_file(path, stair_yaml() + "run: {folder: \"" + (folder_ / "run") + "\"}\n" + stair_stages());
  const std::vector<Stage> stages = load_stages(path);
  ASSERT_EQ(stages.size(), 3u);
  EXPECT_EQ(run_stages(stages, "none").first, Outcome::finished);
  std::vector<TrainingRun> runs;
  for (const Stage& stage : stages) runs.push_back(run_of(stage.config));
  const Batch batch = runs[0].loader->next();
  std::vector<Features> features;
  for (TrainingRun& run : runs) features.push_back(encode(run, batch));
  EXPECT_TRUE(at::equal(features[1].image().global, features[0].image().global));
  EXPECT_FALSE(at::equal(features[1].text().global, features[0].text().global));
  EXPECT_FALSE(at::equal(features[2].image().global, features[1].image().global));
  // Each stage counts its steps from 0, so the regularizers' weights also start again.
  for (const char* stage : {"masked_text", "frozen_image", "joint"}) {
    const auto log = rows(folder_ / (std::string("run/") + stage));
    ASSERT_EQ(log.size(), 4u);
    EXPECT_NEAR(log[0]["terms"]["lambda_text"].get<double>(), 0.2 / 9, 1e-7) << stage;
    EXPECT_NEAR(log[3]["terms"]["lambda_text"].get<double>(), 0.2, 1e-7) << stage;
  }
}

TEST_F(StairTraining, LogsActiveAndDeadTokens) {
  Trainer(stair_config(folder_ / "run", {"log.every_steps=2", "training.accumulation=2"}), "none").run();
  const auto log = rows(folder_ / "run");
  ASSERT_EQ(log.size(), 3u);
  for (const auto& row : log) {
    const auto& statistics = row["statistics"];
    ASSERT_EQ(statistics.size(), 4u);
    for (const char* view : {"image", "text"}) {
      const double active = statistics[std::string("active_tokens.") + view],
                   dead = statistics[std::string("dead_tokens.") + view];
      EXPECT_GT(active, 0) << view;
      EXPECT_LE(active, 62) << view;  // two of the 64 tokens are special
      EXPECT_GE(dead, 2.0 / 64) << view;
      EXPECT_LE(active, 64 * (1 - dead) + 1e-9) << "a token that is active in a sample is not dead";
    }
  }
  EXPECT_TRUE(contains(io::read_file(folder_ / "run/run.html"), "active_tokens"));
}

}  // namespace
}  // namespace tessera
