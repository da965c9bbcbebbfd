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
