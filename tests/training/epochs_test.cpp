#include <gtest/gtest.h>

#include "src/training/memory/dry_run.h"
#include "src/training/run/epochs.h"
#include "src/training/trainer.h"
#include "tests/training/tiny_run.h"
#include <tessera/base/error.h>
#include <tessera/io/atomic_file.h>

namespace tessera {
namespace {

// Removes the number of steps, so that training.epochs decides. The tiny run has 40 samples, which make five batches of eight.
constexpr const char* kNoSteps = "training.steps=null";

class Epochs : public RunTest {
 protected:
  Epochs() { register_test_modules(); }

  std::int64_t steps(const std::vector<std::string>& overrides, int ranks = 1) const {
    return with_steps(tiny_config(folder_ / "run", with({kNoSteps}, overrides)), ranks).training.steps;
  }
  // Writes a configuration that extends the tiny run's configuration, in which training.steps is 6. `training` is the YAML of the section
  // `training`. Returns the path of the written configuration.
  std::string file(const std::string& training) const {
    io::write_file(folder_ / "base.yaml", tiny_yaml());
    io::write_file(folder_ / "own.yaml", "extends: base.yaml\ntraining: " + training + "\n");
    return folder_ / "own.yaml";
  }
};

TEST_F(Epochs, StepsFollowFromDataBatchAndRanks) {
  EXPECT_EQ(steps({"training.epochs=1"}), 5);
  EXPECT_EQ(steps({"training.epochs=2.5"}), 13) << "12.5, rounded to the nearest";
  EXPECT_EQ(steps({"training.epochs=3", "data.loader.batch_size=6"}), 18) << "six whole batches an epoch";
  EXPECT_EQ(steps({"training.epochs=4", "training.accumulation=2"}), 10);
  EXPECT_EQ(steps({"training.epochs=4"}, 2), 8) << "two batches of eight for each of two ranks";
  EXPECT_EQ(steps({"training.epochs=0.01", "schedule.warmup_steps=0"}), 1);
}

TEST_F(Epochs, FollowTheLargestSourceOfAnAccumulatingMixture) {
  const std::string mixture =
      "data.train={name: mixture, mode: accumulate, sources: [{label: a, source: {name: shapes, size: 40, image_size: "
      "16}}, {label: b, source: {name: shapes, size: 16, image_size: 16}}]}";
  EXPECT_EQ(steps({"training.epochs=2", mixture}), 10);
}

TEST_F(Epochs, NearerOfStepsAndEpochsWins) {
  const Config own = load_config(file("{epochs: 2}"));
  EXPECT_EQ(own.training.epochs, 2.0);
  EXPECT_EQ(with_steps(own, 1).training.steps, 10);
  EXPECT_EQ(load_config(file("{epochs: 2}"), {"training.steps=7"}).training.steps, 7);
  EXPECT_FALSE(load_config(file("{epochs: 2}"), {"training.steps=7"}).training.epochs);
  EXPECT_EQ(load_config(file("{steps: 9}"), {"training.epochs=3"}).training.epochs, 3.0);
}

TEST_F(Epochs, LastOfTheExtendedFilesWins) {
  file("{epochs: 2}");
  io::write_file(folder_ / "steps.yaml", "extends: own.yaml\ntraining: {steps: 7}\n");
  for (const auto& [extends, expected] : {std::pair("steps.yaml", 7), std::pair("[own.yaml, base.yaml]", 6)}) {
    io::write_file(folder_ / "leaf.yaml", concat("extends: ", extends, "\nseed: 1\n"));
    const Config config = load_config(folder_ / "leaf.yaml");
    EXPECT_EQ(config.training.steps, expected);
    EXPECT_FALSE(config.training.epochs) << extends;
  }
}

TEST_F(Epochs, StepsAndEpochsInOnePlaceAreAnError) {
  const std::string error = error_of([&] { load_config(file("{steps: 4, epochs: 2}")); });
  EXPECT_TRUE(contains(error, "own.yaml:2: training.epochs: is set together with training.steps ("));
  EXPECT_TRUE(contains(error, "own.yaml:2): leave one of them out"));
}

TEST_F(Epochs, ConfigurationWithEpochsReadsBackUnchanged) {
  const Config config = tiny_config(folder_ / "run", {"training.epochs=2"});
  const Config again = resolve_config(config::parse_yaml(to_yaml(config), "again.yaml"), "again");
  EXPECT_EQ(again.training.epochs, 2.0);
  EXPECT_EQ(to_yaml(again), to_yaml(config));
}

TEST_F(Epochs, SetTheLengthAndScheduleOfTheRun) {
  const std::string run = train("run", {kNoSteps, "training.epochs=1.6"}), other = train("other", {"training.steps=8"});
  expect_same_curve(run, other, 0);
  EXPECT_EQ(rows(run).back()["lr"], rows(other).back()["lr"]);
  const Config written = load_config(run + "/config.yaml");
  EXPECT_EQ(written.training.steps, 8);
  EXPECT_FALSE(written.training.epochs);
}

TEST_F(Epochs, WarnOfAWarmUpLongerThanTheirSteps) {
  const Config config = tiny_config(folder_ / "run", {kNoSteps, "training.epochs=1", "schedule.warmup_steps=20"});
  EXPECT_TRUE(contains(to_text(dry_run(config), config), "warning: schedule.warmup_steps is 20, but the run has only 5 steps"));
}

TEST_F(Epochs, DryRunShowsTheSteps) {
  const Config config = tiny_config(folder_ / "run", {kNoSteps, "training.epochs=2"});
  const std::string text = to_text(dry_run(config), config);
  EXPECT_TRUE(contains(text, "steps             10 (training.epochs 2)"));
}

TEST_F(Epochs, WarnsWhenSkippedSamplesShortenAnEpoch) {
  TrainingSettings settings;
  settings.steps = 124;
  EXPECT_FALSE(shorter_epochs(settings, 720, 280)) << "steps were given";
  settings.counted_epochs = 2;
  EXPECT_EQ(shorter_epochs(settings, 720, 280),
            "training.epochs: 28% of the samples are unusable, so epochs are shorter: 124 steps are 2.78 epochs instead "
            "of 2");
  EXPECT_FALSE(shorter_epochs(settings, 1000, 0));
  EXPECT_FALSE(shorter_epochs(settings, 0, 0));
}

TEST_F(Epochs, DryRunAndRunWarnAboutMissingCaptions) {
  std::string list = "filepath\ttitle\n";
  for (int i = 0; i < 40; ++i)
    list += concat(TESSERA_SOURCE_DIR "/tests/data/images/small_grey.jpg\t", i % 4 == 0 ? "" : "a caption", "\n");
  io::write_file(folder_ / "list.csv", list);
  const Config config =
      tiny_config(folder_ / "run", {kNoSteps, "training.epochs=2", "data.loader.max_bad_share=1",
                                    concat("data.train={name: csv, path: ", folder_ / "list.csv", "}")});
  const DryRunReport report = dry_run(config);
  EXPECT_EQ(report.steps, 10);
  ASSERT_EQ(report.warnings.size(), 1u);
  const std::string expected =
      "training.epochs: 25% of the samples are unusable, so epochs are shorter: 10 steps are 2.67 epochs instead of 2";
  EXPECT_EQ(report.warnings[0], expected);
  EXPECT_EQ(Trainer(config, "none").run(), Outcome::finished);
  const std::string log = io::read_file(folder_ / "run/log.txt");
  const std::size_t first = log.find("warning training.epochs: ");
  EXPECT_NE(first, std::string::npos) << log;
  EXPECT_EQ(log.find("warning training.epochs: ", first + 1), std::string::npos) << "once";
}

}  // namespace
}  // namespace tessera
