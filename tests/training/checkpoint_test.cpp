#include <filesystem>
#include <fstream>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "src/training/checkpoint/checkpoint.h"
#include "src/training/checkpoint/checkpoint_keeper.h"
#include "src/training/run/training_run.h"
#include "tests/support/full_disk.h"
#include "tests/support/resident_growth.h"
#include "tests/training/tiny_run.h"
#include <tessera/io/atomic_file.h>

namespace tessera {
namespace {

namespace fs = std::filesystem;

class CheckpointTest : public ::testing::Test {
 protected:
  CheckpointTest() : config_(tiny_config(folder_ / "run")), parts_(build_training_run(config_)) {}

  Checkpoint at_step(std::int64_t step) const {
    Checkpoint checkpoint;
    checkpoint.config = to_yaml(config_);
    checkpoint.tuning = "0123456789abcdef";
    checkpoint.state.step = step;
    checkpoint.state.data = {1, 2 * step};
    checkpoint.optimizer = parts_.optimizer->state();
    checkpoint.model = {config_.model,
                        *config_.tokenizer,
                        parts_.tokenizer->vocabulary_bytes(),
                        collect_weights(*parts_.model, *parts_.objective),
                        {}};
    return checkpoint;
  }

  TemporaryFolder folder_;
  Config config_;
  TrainingRun parts_;
};

std::vector<std::string> names(const CheckpointFolder& folder) {
  std::vector<std::string> out;
  for (const std::string& path : folder.list()) out.push_back(fs::path(path).filename().string());
  return out;
}

TEST_F(CheckpointTest, ReadsBackWholeAndDeletesTheOldest) {
  CheckpointFolder checkpoints(folder_ / "checkpoints", 2);
  for (const std::int64_t step : {1, 2, 12345678}) checkpoints.save(at_step(step));
  EXPECT_EQ(names(checkpoints), (std::vector<std::string>{"step_0000002", "step_12345678"}));
  EXPECT_EQ(io::read_file(folder_ / "checkpoints/latest"), "step_12345678\n");
  const auto newest = load_newest_checkpoint(checkpoints);
  ASSERT_TRUE(newest.has_value());
  EXPECT_EQ(newest->second.state.step, 12345678);
  EXPECT_EQ(newest->second.state.data.cursor, 2 * 12345678);
  EXPECT_EQ(newest->second.config, to_yaml(config_));
  EXPECT_EQ(newest->second.tuning, "0123456789abcdef");
  expect_equal(newest->second.model.weights, collect_weights(*parts_.model, *parts_.objective));
}

TEST_F(CheckpointTest, SkipsATornOrDamagedNewestCheckpoint) {
  CheckpointFolder checkpoints(folder_ / "checkpoints", 3);
  checkpoints.save(at_step(1));
  const std::string newest = checkpoints.save(at_step(2));
  const std::string model = newest + "/model.safetensors";

  const std::string good = io::read_file(model);
  fs::resize_file(model, good.size() / 2);
  EXPECT_EQ(load_newest_checkpoint(checkpoints)->second.state.step, 1);
  std::string flipped = good;
  flipped[flipped.size() - 5] ^= 1;
  io::write_file(model, flipped);
  EXPECT_EQ(error_of([&] { load_checkpoint(newest); }), model + ": damaged: its checksum differs from the manifest's");
  EXPECT_EQ(load_newest_checkpoint(checkpoints)->second.state.step, 1);
  fs::remove(newest + "/state.safetensors");
  EXPECT_EQ(load_newest_checkpoint(checkpoints)->second.state.step, 1);

  for (const std::string& each : checkpoints.list()) fs::remove(each + "/manifest.json");
  EXPECT_TRUE(
      error_of([&] { load_newest_checkpoint(checkpoints); }).starts_with("no checkpoint can be read: " + newest));
}

TEST_F(CheckpointTest, KeepsOnlyTheOldCheckpointWhenTheDiskIsFull) {
  CheckpointFolder checkpoints(folder_ / "checkpoints", 3);
  checkpoints.save(at_step(1));
  const std::string error = error_of([&] {
    const FullDisk full(4096);
    checkpoints.save(at_step(2));
  });
  EXPECT_TRUE(contains(error, "cannot write: File too large"));
  EXPECT_EQ(names(checkpoints), std::vector<std::string>{"step_0000001"});
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_ / "checkpoints"), fs::directory_iterator()), 2)
      << "the checkpoint and latest";
  EXPECT_EQ(load_newest_checkpoint(checkpoints)->second.state.step, 1);
  checkpoints.save(at_step(2));
  EXPECT_EQ(load_newest_checkpoint(checkpoints)->second.state.step, 2);
}

TEST_F(CheckpointTest, KeepsEveryNthCheckpoint) {
  CheckpointFolder checkpoints(folder_ / "checkpoints", 1, /*keep_every=*/10);
  for (const std::int64_t step : {5, 10, 15, 20, 25}) checkpoints.save(at_step(step));
  EXPECT_EQ(names(checkpoints), (std::vector<std::string>{"step_0000010", "step_0000020", "step_0000025"}));
}

// Checkpoints of later steps exist if they were damaged and the run resumed from an earlier one.
TEST_F(CheckpointTest, DeletesCheckpointsOfLaterStepsBeforeTheNewOne) {
  CheckpointFolder checkpoints(folder_ / "checkpoints", 2);
  for (const std::int64_t step : {8, 10, 4}) checkpoints.save(at_step(step));
  EXPECT_EQ(names(checkpoints), (std::vector<std::string>{"step_0000004", "step_0000010"}));
  checkpoints.save(at_step(6));
  EXPECT_EQ(names(checkpoints), (std::vector<std::string>{"step_0000004", "step_0000006"}));
}

TEST_F(CheckpointTest, WriterCopiesToASecondFolderAndRunsTheCommand) {
  CheckpointSettings settings;
  settings.copy_to = folder_ / "second";
  settings.command = "basename \"$1\" >> " + (folder_ / "told");
  CheckpointWriter writer(CheckpointFolder(folder_ / "checkpoints", 2), settings);
  for (const std::int64_t step : {1, 2}) {
    writer.begin(at_step(step));
    writer.collect();
  }
  writer.finish();
  EXPECT_EQ(io::read_file(folder_ / "told"), "step_0000001\nstep_0000002\n");
  const auto copy = load_newest_checkpoint(CheckpointFolder(folder_ / "second", 2));
  ASSERT_TRUE(copy.has_value());
  EXPECT_EQ(copy->second.state.step, 2);
  EXPECT_EQ(io::read_file(folder_ / "second/latest"), "step_0000002\n");
}

TEST_F(CheckpointTest, TheLastSaveDoesNotWaitForTheStorageOfAnEarlierOne) {
  CheckpointSettings settings;
  const std::string checkpoints = folder_ / "checkpoints", last = checkpoints + "/step_0000002/manifest.json";
  // The first checkpoint's command ends when the second checkpoint is written, or after five seconds.
  settings.command = "n=0; while [ ! -e " + last + " ] && [ $n -lt 500 ]; do sleep 0.01; n=$((n + 1)); done; ls " + checkpoints + " | grep -v tmp >> " +
                     (folder_ / "told");
  CheckpointWriter writer(CheckpointFolder(checkpoints, 1), settings);
  writer.begin(at_step(1));
  writer.collect();
  writer.begin(at_step(2), /*stands_still=*/true);
  EXPECT_EQ(writer.collect(), checkpoints + "/step_0000002");
  EXPECT_EQ(io::read_file(folder_ / "told"), "latest\nstep_0000001\nstep_0000002\n" "latest\nstep_0000002\n")
      << "a checkpoint is not deleted before it is stored";
}

TEST_F(CheckpointTest, FailingCopyOrCommandLeavesTheCheckpoint) {
  CheckpointSettings settings;
  io::write_file(folder_ / "file", "");
  settings.copy_to = folder_ / "file";  // not a folder
  settings.command = "exit 3";
  CheckpointWriter writer(CheckpointFolder(folder_ / "checkpoints", 2), settings);
  writer.begin(at_step(1));
  EXPECT_EQ(writer.collect(), folder_ / "checkpoints/step_0000001");
  EXPECT_EQ(load_checkpoint(folder_ / "checkpoints/step_0000001").state.step, 1);
}

TEST_F(CheckpointTest, WriterSavesTheStateAtItsStart) {
  CheckpointWriter writer(CheckpointFolder(folder_ / "checkpoints", 2), {});
  const auto weights = collect_weights(*parts_.model, *parts_.objective);
  const at::Tensor before = weights.at("visual.conv1.weight").detach().clone();
  writer.begin(at_step(1));
  weights.at("visual.conv1.weight").detach().add_(1.0);  // as if training continued during the save
  EXPECT_TRUE(writer.pending());
  const Checkpoint saved = load_checkpoint(writer.collect());
  EXPECT_TRUE(at::equal(saved.model.weights.at("visual.conv1.weight"), before));
  EXPECT_FALSE(writer.pending());
}

// The optimizer state has 64 MiB. A save during training holds a copy of it, but the last save, after training, does not.
TEST_F(CheckpointTest, HoldsAtMostOneCopyWhileSavingAndNoneAtTheEnd) {
  constexpr std::int64_t kMebibyte = 1 << 20, kState = 64 * kMebibyte, kRoom = 16 * kMebibyte;
  Checkpoint checkpoint = at_step(1);
  checkpoint.optimizer["exp_avg.large"] = at::ones({kState / 4});
  CheckpointWriter writer(CheckpointFolder(folder_ / "checkpoints", 1), {});
  const auto growth = [&](bool stands_still) {
    return resident_growth([&] {
      writer.begin(checkpoint, stands_still);
      writer.collect();
    });
  };
  const auto beside = growth(false), last = growth(true);
  if (!beside || !last) GTEST_SKIP() << "the kernel does not report peak memory";
  EXPECT_GT(*beside, kState - kRoom) << "a save during training copies the state";
  EXPECT_LT(*beside, kState + kRoom);
  EXPECT_LT(*last, kRoom);
  EXPECT_EQ(load_checkpoint(folder_ / "checkpoints/step_0000001").optimizer.at("exp_avg.large").numel(), kState / 4);
}

TEST_F(CheckpointTest, IgnoresHalfWrittenFolders) {
  CheckpointFolder checkpoints(folder_ / "checkpoints", 3);
  checkpoints.save(at_step(1));
  fs::create_directory(folder_ / "checkpoints/.writing_step_0000002");
  EXPECT_EQ(names(checkpoints), std::vector<std::string>{"step_0000001"});
  checkpoints.remove_leftovers();
  EXPECT_FALSE(fs::exists(folder_ / "checkpoints/.writing_step_0000002"));
}

}  // namespace
}  // namespace tessera
