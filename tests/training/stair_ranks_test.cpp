// Tests `stair` over ranks and after being killed in its second stage. Only run_ranks may compute in this process; see its
// comment.
#include <csignal>
#include <filesystem>
#include <sys/wait.h>
#include <unistd.h>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "tests/distributed/ranks.h"
#include "tests/training/stair_run.h"
#include "tests/training/tiny_run.h"
#include <tessera/io/atomic_file.h>
#include <tessera/training/stages.h>

namespace tessera {
namespace {

class StairOverRanks : public ::testing::Test {
 protected:
  std::string file(const std::string& name) const {
    const std::string path = folder_ / (name + ".yaml");
    io::write_file(path, stair_yaml() + "run: {folder: \"" + (folder_ / name) + "\"}\n" + stair_stages());
    return path;
  }
  // Trains all stages and returns the final weights.
  Tensors train(const std::string& name) const {
    const std::string path = file(name);
    const auto ends = run_ranks(1, [&](const ProcessGroup& group) {
      run_stages(load_stages(path, {"checkpoint.every_steps=2", "checkpoint.background=false"}), "auto", group);
      return load_checkpoint(folder_ / (name + "/joint/checkpoints/step_0000004")).model.weights;
    });
    return ends.empty() ? Tensors() : ends[0];
  }

  TemporaryFolder folder_;
};

TEST_F(StairOverRanks, TrainsTheSameOnOneAndTwoRanks) {
  const auto train_on = [&](int ranks, const std::string& name) {
    const std::string run = folder_ / name;
    const auto ends = run_ranks(ranks, [&](const ProcessGroup& group) {
      // The bias of keys does not change attention: its gradient is rounding noise, which LAMB would scale up.
      Config config = stair_config(run, {"objective.text_token_mask=true", "optimizer.eps=1.0e-4"});
      config.data.loader.batch_size = 8 / ranks;
      Trainer trainer(config, "none", group);
      trainer.run();
      return weights_of(*trainer.training_run().model, *trainer.training_run().objective);
    });
    return ends.empty() ? Tensors() : ends[0];
  };
  const Tensors one = train_on(1, "one"), two = train_on(2, "two");
  ASSERT_FALSE(one.empty() || two.empty());
  const auto ours = rows(folder_ / "one"), theirs = rows(folder_ / "two");
  ASSERT_EQ(ours.size(), theirs.size());
  for (std::size_t i = 0; i < ours.size(); ++i) {
    EXPECT_NEAR(ours[i]["loss"].get<double>(), theirs[i]["loss"].get<double>(), 2e-4) << "step " << i + 1;
    for (const auto& [name, value] : ours[i]["statistics"].items())
      EXPECT_NEAR(theirs[i]["statistics"][name].get<double>(), value.get<double>(), 0.02 * (1 + value.get<double>()))
          << name << ", step " << i + 1;
  }
  for (const auto& [name, tensor] : one) EXPECT_TRUE(at::allclose(tensor, two.at(name), 1e-3, 1e-3)) << name;
}

TEST_F(StairOverRanks, ResumesBitForBitAfterBeingKilledInTheSecondStage) {
  const Tensors unbroken = train("unbroken");
  const std::string path = file("broken");
  const pid_t child = ::fork();
  if (child == 0) {
    at::set_num_threads(1);  // as in run_ranks
    kill_stair_at(3);
    run_stages(load_stages(path, {"checkpoint.every_steps=2", "checkpoint.background=false"}), "auto");
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
  ASSERT_TRUE(std::filesystem::exists(folder_ / "broken/frozen_image/checkpoints/step_0000002"));
  ASSERT_FALSE(std::filesystem::exists(folder_ / "broken/frozen_image/checkpoints/step_0000004"));
  const Tensors resumed = train("broken");
  ASSERT_FALSE(unbroken.empty());
  ASSERT_EQ(resumed.size(), unbroken.size());
  for (const auto& [name, tensor] : unbroken) EXPECT_TRUE(at::equal(resumed.at(name), tensor)) << name;
}

}  // namespace
}  // namespace tessera
