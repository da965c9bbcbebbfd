// Tests `text_group` over ranks. Only run_ranks may compute in this process; see its comment.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/distributed/ranks.h"
#include "tests/training/text_group_run.h"
#include "tests/training/tiny_run.h"
#include <tessera/training/trainer.h>

namespace tessera {
namespace {

TEST(TextGroupOverRanks, TrainsTheSameOnOneAndTwoRanks) {
  TemporaryFolder folder;
  for (const char* reduction : {"mean", "sum"}) {
    const auto train_on = [&](int ranks) {
      // The bias of keys does not change attention: its gradient is rounding noise, which AdamW would scale up.
      Config config = text_group_config(
          folder / concat(reduction, ranks),
          {concat("objective.reconstruction_reduction=", reduction), "optimizer.eps=1.0e-4", "training.steps=4"});
      config.data.loader.batch_size = 8 / ranks;
      const auto ends = run_ranks(ranks, [&](const ProcessGroup& group) {
        Trainer trainer(config, "none", group);
        trainer.run();
        return weights_of(*trainer.training_run().model, *trainer.training_run().objective);
      });
      return ends.empty() ? Tensors() : ends[0];
    };
    const Tensors one = train_on(1), two = train_on(2);
    ASSERT_FALSE(one.empty() || two.empty());
    const auto ours = rows(folder / concat(reduction, 1)), theirs = rows(folder / concat(reduction, 2));
    ASSERT_EQ(ours.size(), theirs.size());
    for (std::size_t i = 0; i < ours.size(); ++i)
      for (const auto& [name, value] : ours[i]["terms"].items())
        EXPECT_NEAR(theirs[i]["terms"][name].get<double>(), value.get<double>(), 2e-4 * (1 + value.get<double>()))
            << name << ", step " << i + 1;
    for (const auto& [name, tensor] : one) EXPECT_TRUE(at::allclose(tensor, two.at(name), 1e-3, 1e-3)) << name;
  }
}

}  // namespace
}  // namespace tessera
