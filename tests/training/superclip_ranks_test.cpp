// Tests `superclip` over ranks and after being killed. Only run_ranks may compute in this process; see its comment.
#include <csignal>
#include <sys/wait.h>
#include <unistd.h>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "tests/distributed/ranks.h"
#include "tests/training/tiny_run.h"
#include <tessera/objectives/superclip.h>
#include <tessera/training/trainer.h>

namespace tessera {
namespace {

std::int64_t superclip_killed_at = -1;

/// `superclip` that kills the process in the forward pass of step superclip_killed_at.
class KilledSuperClip : public SuperClip {
 public:
  using SuperClip::SuperClip;
  Losses forward(const Features& features, const StepContext& context) override {
    if (context.step == superclip_killed_at) ::raise(SIGKILL);
    return SuperClip::forward(features, context);
  }
};

void register_killed_superclip() {
  register_test_modules();
  constexpr const char* kName = "test_killed_superclip";
  if (objectives().contains(kName)) return;
  objectives().add<SuperClipSettings>(kName, "superclip until a step",
                                      [](const SuperClipSettings& settings, const ObjectiveContext& context) {
                                        return std::make_shared<KilledSuperClip>(settings, context);
                                      });
}

const std::vector<std::string> kKilled = {
    "objective={name: weighted_sum, objectives: [{name: clip}, {name: test_killed_superclip, label: superclip}]}",
    "checkpoint.every_steps=2", "checkpoint.background=false", "training.accumulation=2"};

class SuperClipOverRanks : public ::testing::Test {
 protected:
  std::vector<Tensors> train(int ranks, const std::string& name, const std::vector<std::string>& more,
                             const std::string& resume = "none") const {
    return run_ranks(ranks, [&](const ProcessGroup& group) {
      register_killed_superclip();
      std::vector<std::string> all{"data.loader.batch_size=" + std::to_string(8 / group.size())};
      all.insert(all.end(), more.begin(), more.end());
      Trainer trainer(tiny_config(folder_ / name, all), resume, group);
      trainer.run();
      Tensors out;
      for (const auto& [key, tensor] : weights_of(*trainer.training_run().model, *trainer.training_run().objective))
        out[key] = tensor.detach().clone();
      return out;
    });
  }

  TemporaryFolder folder_;
};

// Twelve steps on 40 samples pass the end of two epochs. The counts must be the same integers.
TEST_F(SuperClipOverRanks, CountsAreTheSameOnOneTwoAndFourRanksForAnyMicroBatch) {
  const std::vector<std::string> plain{"objective={name: superclip}", "training.steps=12"};
  const auto one = train(1, "one", plain);
  ASSERT_EQ(one.size(), 1U);
  EXPECT_EQ(one[0].at("objective.caption_count").item<std::int64_t>(), 96);
  for (const int ranks : {2, 4}) {
    for (const bool cut : {false, true}) {
      std::vector<std::string> settings = plain;
      if (cut)
        settings.insert(settings.end(), {"training.micro_batch=1", "training.accumulation=2",
                                         "data.loader.batch_size=" + std::to_string(4 / ranks),
                                         "distributed.shard_optimizer=true"});
      const std::string name = std::to_string(ranks) + (cut ? "cut" : "");
      const auto all = train(ranks, name, settings);
      ASSERT_EQ(all.size(), static_cast<std::size_t>(ranks));
      expect_same_curve(folder_ / name, folder_ / "one", 2e-4);
      for (const Tensors& rank : all) {
        expect_equal(rank, all[0]);
        for (const char* counts : {"objective.document_count", "objective.caption_count"})
          EXPECT_TRUE(at::equal(rank.at(counts), one[0].at(counts))) << counts << " of " << ranks;
      }
    }
  }
}

TEST_F(SuperClipOverRanks, ResumesBitForBitAfterBeingKilledInAStep) {
  const auto unbroken = train(1, "unbroken", kKilled);
  ASSERT_EQ(unbroken.size(), 1U);
  const pid_t child = ::fork();
  if (child == 0) {
    at::set_num_threads(1);  // as in run_ranks
    register_killed_superclip();
    superclip_killed_at = 3;
    Trainer(tiny_config(folder_ / "broken", kKilled), "none").run();
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
  const auto resumed = train(1, "broken", kKilled, "auto");
  ASSERT_EQ(resumed.size(), 1U);
  expect_equal(resumed[0], unbroken[0]);
  EXPECT_EQ(resumed[0].at("objective.objectives.superclip.caption_count").item<std::int64_t>(), 6 * 16);
}

}  // namespace
}  // namespace tessera
