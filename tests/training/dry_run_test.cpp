#include <gtest/gtest.h>

#include "tests/training/tiny_run.h"
#include <tessera/training/dry_run.h>

namespace tessera {
namespace {

TEST(DryRun, CountsParametersAndBytes) {
  const TemporaryFolder folder;
  const StepCost cost = measure_step(tiny_config(folder / "run"));
  // conv1 3*8*8*16, positions 5*16, class 16, ln_pre and ln_post 2*32, block, projection 16*8
  const std::int64_t block = 4 * 16 + (48 * 16 + 48) + (16 * 16 + 16) + (64 * 16 + 64) + (16 * 64 + 16);
  EXPECT_EQ(cost.image_parameters, 3 * 8 * 8 * 16 + 5 * 16 + 16 + 64 + block + 16 * 8);
  EXPECT_EQ(cost.text_parameters, 64 * 16 + 24 * 16 + 32 + block + 16 * 8);
  EXPECT_EQ(cost.objective_parameters, 1);
  const std::int64_t all = cost.image_parameters + cost.text_parameters + 1;
  EXPECT_EQ(cost.gradients, 4 * all);
  EXPECT_EQ(cost.optimizer, 8 * all + 8) << "two moments and the step";
  EXPECT_GT(cost.activations, 0);
  EXPECT_GT(cost.peak, cost.weights + cost.optimizer + cost.activations);
  EXPECT_GT(cost.total_flops, 2 * cost.forward_flops);
  EXPECT_FALSE(std::filesystem::exists(folder / "run")) << "a dry run writes nothing";
}

}  // namespace
}  // namespace tessera
