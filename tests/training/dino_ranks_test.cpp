// Tests `dino` over ranks and after being killed. Only run_ranks may compute in this process; see its comment.
#include <csignal>
#include <filesystem>
#include <sys/wait.h>
#include <unistd.h>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "tests/distributed/ranks.h"
#include "tests/training/dino_run.h"
#include "tests/training/tiny_run.h"
#include <tessera/training/trainer.h>

namespace tessera {
namespace {

struct NamedRun {
  decltype(&dino_config) make;
  std::string name;
};

class DinoOverRanks : public ::testing::Test {
 protected:
  // Trains and returns the final weights, center and teacher.
  Tensors train(const Config& config, int ranks) const {
    Config own = config;
    own.data.loader.batch_size = 8 / ranks;
    const auto ends = run_ranks(ranks, [&](const ProcessGroup& group) {
      Trainer trainer(own, "auto", group);
      trainer.run();
      const TrainingRun& run = trainer.training_run();
      Tensors out = weights_of(*run.model, *run.objective);
      for (const auto& [name, tensor] : run.teacher->ema.averages()) out["teacher." + name] = tensor;
      return out;
    });
    return ends.empty() ? Tensors() : ends[0];
  }

  TemporaryFolder folder_;
};

TEST_F(DinoOverRanks, TrainsTheSameOnOneAndTwoRanks) {
  for (const auto& [make, name] : {NamedRun{dino_config, "dino"}, NamedRun{silc_config, "silc"}, NamedRun{siglip2_config, "siglip2"}}) {
    const std::string run = folder_ / name;
    // The bias of keys does not change attention: its gradient is rounding noise, which AdamW would scale up to a full step.
    const std::vector<std::string> no_rounding = {"optimizer.eps=1.0e-4"};
    const Tensors one = train(make(run + "_one", no_rounding), 1), two = train(make(run + "_two", no_rounding), 2);
    ASSERT_FALSE(one.empty() || two.empty());
    const auto ours = rows(run + "_one"), theirs = rows(run + "_two");
    ASSERT_EQ(ours.size(), theirs.size());
    for (std::size_t i = 0; i < ours.size(); ++i)
      EXPECT_NEAR(ours[i]["loss"].get<double>(), theirs[i]["loss"].get<double>(), 2e-4) << name << ", step " << i + 1;
    bool center = false;
    for (const auto& [key, tensor] : one) {
      EXPECT_TRUE(at::allclose(tensor, two.at(key), 1e-3, 1e-4)) << name << ": " << key;
      center = center || (key.ends_with("loss.center") && tensor.abs().max().item<double>() > 1e-3);
    }
    EXPECT_TRUE(center) << name << ": the center did not move";
  }
}

TEST_F(DinoOverRanks, ResumesBitForBitAfterBeingKilled) {
  const std::vector<std::string> save = {"checkpoint.every_steps=2", "checkpoint.background=false"};
  for (const auto& [make, name] : {NamedRun{killed_dino_config, "dino"}, NamedRun{killed_siglip2_config, "siglip2"}}) {
    const std::string broken = folder_ / (name + "_broken");
    const Tensors unbroken = train(make(folder_ / (name + "_unbroken"), save), 1);
    const pid_t child = ::fork();
    if (child == 0) {
      at::set_num_threads(1);  // as in run_ranks
      kill_dino_at(5);
      Trainer(make(broken, save), "none").run();
      ::_exit(0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
    ASSERT_TRUE(std::filesystem::exists(broken + "/checkpoints/step_0000004/teacher.safetensors"));
    const Tensors resumed = train(make(broken, save), 1);
    ASSERT_EQ(resumed.size(), unbroken.size());
    for (const auto& [key, tensor] : unbroken) EXPECT_TRUE(at::equal(resumed.at(key), tensor)) << name << ": " << key;
  }
}

}  // namespace
}  // namespace tessera
