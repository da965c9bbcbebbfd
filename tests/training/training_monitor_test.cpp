#include <filesystem>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "src/optim/grad_norm_groups.h"
#include "src/training/log/training_monitor.h"
#include "src/training/trainer.h"
#include "tests/training/tiny_run.h"

namespace tessera {
namespace {

// The test sets the clock. The host takes 0.1 s to submit a step to the device, and then waits for the device.
TEST(TrainingMonitor, MeasuresSpeedBetweenRowsWithoutOtherWork) {
  const TemporaryFolder folder;
  const Config config = tiny_config(folder.path(), {"log.every_steps=2"});
  const TrainingRun run = build_training_run(config);
  const ProcessGroup alone;
  double now = 1000;
  TrainingMonitor monitor(config, alone, run, folder.path(), [&] { return now; });
  monitor.resume_at(0);
  const auto numbers = static_cast<std::int64_t>(2 + grad_norm_groups(*run.optimizer).names.size());
  const auto train = [&](std::int64_t step) {
    monitor.observe(step, [&] {
      now += 0.1;
      TrainedStep made;
      made.losses.step = step;
      made.losses.samples = 8;
      made.losses.wait_seconds = 0.05;
      made.numbers = at::ones({numbers});
      made.decision = at::zeros({}, at::kLong);  // NonFiniteGuard::StepDecision::update
      return made;
    });
  };
  const auto record = [&](double waiting_for_the_device) {
    now += waiting_for_the_device;
    for (TrainedStep& step : monitor.read_back()) monitor.record(step.row, {.step = step.losses.step});
  };
  monitor.leave_out([&] { now += 50; });  // before the first step
  train(1);
  train(2);
  record(1.8);
  monitor.leave_out([&] { now += 30; });  // evaluating
  train(3);
  train(4);
  record(0.3);

  const auto lines = rows(folder.path());
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_NEAR(lines[0]["samples_per_second"].get<double>(), 16 / 2.0, 1e-9);
  EXPECT_NEAR(lines[0]["wait_share"].get<double>(), 0.1 / 2.0, 1e-9);
  EXPECT_NEAR(lines[1]["samples_per_second"].get<double>(), 16 / 0.5, 1e-9);
  EXPECT_NEAR(lines[1]["wait_share"].get<double>(), 0.1 / 0.5, 1e-9);
}

TEST(CutWatch, ReportsOncePerEpochTheCutShareOfEachView) {
  CutWatch watch(77);
  std::map<std::string, TextCuts> seen = {{"caption", {100, 0, 900, 0}}, {"captions", {800, 200, 10'000, 1'230}}};
  EXPECT_EQ(watch.epoch_over(0, seen),
            (std::vector<std::string>{"epoch 0: the tokenizer's context of 77 cut off 12.3% of the tokens of captions, out "
                                      "of 25.0% of its texts"}));
  const auto shares = watch.take_shares();
  ASSERT_EQ(shares.size(), 2u) << "the view that lost nothing is not reported";
  EXPECT_EQ(shares[0].first, "tokens.captions");
  EXPECT_NEAR(shares[0].second, 0.123, 1e-12);
  EXPECT_EQ(shares[1].first, "texts.captions");
  EXPECT_NEAR(shares[1].second, 0.25, 1e-12);
  EXPECT_TRUE(watch.take_shares().empty()) << "once";
  seen["captions"] += {800, 1, 10'000, 5};
  EXPECT_EQ(watch.epoch_over(1, seen).at(0),
            "epoch 1: the tokenizer's context of 77 cut off less than 0.1% of the tokens of captions, out of 0.1% of its "
            "texts");
  EXPECT_TRUE(watch.epoch_over(2, seen).empty());
}

// The captions of shapes are longer than the context of eight tokens, so they are cut.
TEST(CutWatch, WarnsEarlyIfMuchIsCutOff) {
  CutWatch watch(20);
  const std::map<std::string, TextCuts> cuts = {{"caption", {10, 10, 3000, 2940}}, {"summary", {10, 1, 100, 5}}};
  std::vector<std::string> said;
  for (int step = 0; step < 100; ++step)
    for (std::string& line : watch.note(cuts)) said.push_back(std::move(line));
  EXPECT_EQ(said, (std::vector<std::string>{"the tokenizer's context of 20 cuts off 98.0% of the tokens of caption: set a larger "
                                            "tokenizer.context_length, or shorten the texts"}));
}

TEST(TrainingMonitor, LastRowOfAnEpochReportsItsCuts) {
  const TemporaryFolder folder;
  const Config config = tiny_config(folder / "run", {"tokenizer.context_length=8", "data.train.size=24",
                                                     "data.loader.batch_size=8", "training.steps=4", "log.every_steps=1"});
  Trainer(config, "none").run();
  const auto lines = rows(folder / "run");
  ASSERT_EQ(lines.size(), 4u);
  for (const int within : {0, 1}) EXPECT_FALSE(lines[static_cast<std::size_t>(within)].contains("cut"));
  for (const int over : {2, 3}) {  // the rows at the end of the epoch and of the run
    const auto& cut = lines[static_cast<std::size_t>(over)]["cut"];
    EXPECT_EQ(cut["texts.caption"], 1.0) << over;
    EXPECT_GT(cut["tokens.caption"], 0.5) << over;
    EXPECT_LT(cut["tokens.caption"], 1.0) << over;
  }
}

}  // namespace
}  // namespace tessera
