// Trains whole runs with recorded steps (training.cuda_graph), with a stand-in for CUDA graphs.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "kernels/adamw/adamw.h"
#include "src/optim/adamw.h"
#include "src/training/trainer.h"
#include "tests/training/repeater.h"
#include "tests/training/tiny_run.h"

namespace tessera {
namespace {

class RecordedRun : public RunTest {
 protected:
  ~RecordedRun() override { test_recorder() = nullptr; }

  /// Makes later runs with training.cuda_graph use the stand-in. If `kernel` is set, the optimizer uses the emulated kernel.
  void use_stand_in(bool kernel = false) {
    test_recorder() = [this, kernel](const TrainingRun& run) {
      if (kernel) dynamic_cast<AdamW&>(*run.optimizer).use_kernel(kernels::emulation::adamw_update);
      std::vector<at::Tensor> parameters, state;
      for (const NamedParameter& each : run.optimizer->parameters()) parameters.push_back(each.tensor);
      state = parameters;
      for (const auto& [name, tensor] : run.optimizer->state())
        if (name != "step") state.push_back(tensor);
      auto recorder = std::make_unique<Repeater>(parameters, state);
      recorder_ = recorder.get();
      return recorder;
    };
  }

  /// Trains, and returns how many batches were replayed.
  int train_recorded(const std::string& name, const std::vector<std::string>& overrides, const Resume& resume = "none") {
    Trainer trainer(tiny_config(folder_ / name, with(overrides, {"training.cuda_graph=true"})), resume);
    EXPECT_EQ(trainer.run(), Outcome::finished);
    return recorder_->replays;
  }

  Repeater* recorder_ = nullptr;
};

const std::vector<std::string> kLong = {"training.steps=9", "data.train.size=200", "data.loader.batch_size=20",
                                        "checkpoint.keep_last=9"};

TEST_F(RecordedRun, HasTheCurveOfAPlainRun) {
  for (const bool kernel : {false, true}) {
    use_stand_in(kernel);
    const std::string name = kernel ? "kernel" : "recorded";
    EXPECT_GT(train_recorded(name, kLong), 3);
    expect_same_curve(folder_ / name, train("plain " + name, kLong), 2e-5);
  }
}

TEST_F(RecordedRun, AccumulatesAsAPlainRunDoes) {
  use_stand_in();
  const std::vector<std::string> more = with(kLong, {"training.accumulation=2", "training.ema={decay: 0.9}", "schedule.weight_decay_end=0.3"});
  EXPECT_GT(train_recorded("recorded", more), 10);
  expect_same_curve(folder_ / "recorded", train("plain", more), 2e-5);
}

TEST_F(RecordedRun, RecordsAnUpdateWhoseNumbersChange) {
  use_stand_in(/*kernel=*/true);
  const std::vector<std::string> more = with(kLong, {"training.ema={decay: 0.9}", "schedule.weight_decay_end=0.3", "training.clip_norm=0.1"});
  EXPECT_GT(train_recorded("recorded", more), 3);
  expect_same_curve(folder_ / "recorded", train("plain", more), 2e-5);
}

TEST_F(RecordedRun, MakesAnUpdateThatFreezesParametersWithoutARecording) {
  use_stand_in();
  const std::vector<std::string> more = with(kLong, {"parameters.groups=[{match: [image], frozen_steps: 5}]"});
  EXPECT_GT(train_recorded("recorded", more), 3);
  expect_same_curve(folder_ / "recorded", train("plain", more), 2e-5);
}

TEST_F(RecordedRun, MakesAnUpdateOfRoundedMomentsWithoutARecording) {
  use_stand_in();
  const std::vector<std::string> more = with(kLong, {"training.moments=bfloat16"});
  EXPECT_GT(train_recorded("recorded", more), 3);
  expect_same_curve(folder_ / "recorded", train("plain", more), 2e-5);
}

TEST_F(RecordedRun, ResumesBitForBit) {
  for (const bool kernel : {false, true}) {
    use_stand_in(kernel);
    const std::string whole = kernel ? "whole kernel" : "whole", part = kernel ? "part kernel" : "part";
    train_recorded(whole, kLong);
    EXPECT_GT(train_recorded(part, kLong, std::string(folder_ / whole) + "/checkpoints/" + step_folder_name(3)), 0);
    const Checkpoint a = checkpoint_of(folder_ / whole, 9), b = checkpoint_of(folder_ / part, 9);
    expect_equal(a.model.weights, b.model.weights);
    expect_equal(a.optimizer, b.optimizer);
  }
}

}  // namespace
}  // namespace tessera
