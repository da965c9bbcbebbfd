// Tests `pyramidclip` over ranks and after being killed. Only run_ranks may compute in this process; see its comment.
#include <csignal>
#include <filesystem>
#include <sys/wait.h>
#include <unistd.h>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "tests/distributed/ranks.h"
#include "tests/training/pyramid_run.h"
#include "tests/training/tiny_run.h"
#include <tessera/training/trainer.h>

namespace tessera {
namespace {

class PyramidOverRanks : public ::testing::Test {
 protected:
  PyramidOverRanks() : shards_(write_pyramid_shards(folder_ / "shards")) {}

  // Trains and returns the final weights.
  Tensors train(const std::string& run, int ranks, std::vector<std::string> overrides = {}) const {
    overrides.push_back("data.loader.batch_size=" + std::to_string(8 / ranks));
    const auto ends = run_ranks(ranks, [&](const ProcessGroup& group) {
      Trainer trainer(pyramid_config(folder_ / run, shards_, overrides), "auto", group);
      trainer.run();
      return weights_of(*trainer.training_run().model, *trainer.training_run().objective);
    });
    return ends.empty() ? Tensors() : ends[0];
  }

  TemporaryFolder folder_;
  std::string shards_;
};

TEST_F(PyramidOverRanks, TrainsTheSameOnOneAndTwoRanksIfOneLacksViews) {
  const auto absent = run_ranks(2, [&](const ProcessGroup& group) {
    const Config config = pyramid_config(folder_ / "looked_at", shards_, {"data.loader.batch_size=4"});
    const Batch batch = build_training_run(config, group).loader->next();
    return Tensors{{"regions", batch.images.at("roi").mask.any(1).logical_not().sum()},
                   {"summary", batch.texts.at("summary").mask.any(1).logical_not().sum()},
                   {"objects", batch.texts.at("objects").mask.any(1).logical_not().sum()}};
  });
  ASSERT_EQ(absent.size(), 2u);
  for (const auto& [view, samples] : Tensors(absent[0])) EXPECT_EQ(samples.item<std::int64_t>(), 0) << view;
  EXPECT_EQ(absent[1].at("regions").item<std::int64_t>(), 4);
  EXPECT_EQ(absent[1].at("summary").item<std::int64_t>(), 2);
  EXPECT_EQ(absent[1].at("objects").item<std::int64_t>(), 2);

  const Tensors one = train("one", 1), two = train("two", 2);
  ASSERT_FALSE(one.empty() || two.empty());
  expect_same_curve(folder_ / "one", folder_ / "two", 2e-4);
  for (const auto& [name, tensor] : one) EXPECT_TRUE(at::allclose(tensor, two.at(name), 1e-3, 1e-4)) << name;
}

TEST_F(PyramidOverRanks, ResumesBitForBitAfterBeingKilled) {
  const std::vector<std::string> overrides = killed_pyramid();
  const Tensors unbroken = train("unbroken", 1, overrides);
  const pid_t child = ::fork();
  if (child == 0) {
    at::set_num_threads(1);  // as in run_ranks
    kill_pyramid_at(5);
    Trainer(pyramid_config(folder_ / "broken", shards_, overrides), "none").run();
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
  ASSERT_TRUE(std::filesystem::exists(folder_ / "broken/checkpoints/step_0000004"));
  const Tensors resumed = train("broken", 1, overrides);
  ASSERT_FALSE(unbroken.empty());
  ASSERT_EQ(resumed.size(), unbroken.size());
  for (const auto& [name, tensor] : unbroken) EXPECT_TRUE(at::equal(resumed.at(name), tensor)) << name;
}

}  // namespace
}  // namespace tessera
