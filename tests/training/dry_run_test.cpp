#include <gtest/gtest.h>

#include "tests/training/tiny_run.h"
#include <tessera/training/memory/dry_run.h>

namespace tessera {
namespace {

TEST(DryRun, CountsParametersAndBytes) {
  const TemporaryFolder folder;
  const DryRunReport cost = measure_step(tiny_config(folder / "run"));
  // conv1 3*8*8*16, positions 5*16, class 16, ln_pre and ln_post 2*32, block, projection 16*8
  const std::int64_t block = 4 * 16 + (48 * 16 + 48) + (16 * 16 + 16) + (64 * 16 + 64) + (16 * 64 + 16);
  EXPECT_EQ(cost.image_parameters, 3 * 8 * 8 * 16 + 5 * 16 + 16 + 64 + block + 16 * 8);
  EXPECT_EQ(cost.text_parameters, 64 * 16 + 24 * 16 + 32 + block + 16 * 8);
  EXPECT_EQ(cost.objective_parameters, 1);
  const std::int64_t all = cost.image_parameters + cost.text_parameters + 1;
  EXPECT_EQ(cost.memory.gradients, 4 * all);
  EXPECT_EQ(cost.memory.optimizer, 8 * all + 8) << "two moments and the step";
  EXPECT_GT(cost.memory.activations, 0);
  EXPECT_GT(cost.memory.peak, cost.memory.weights + cost.memory.optimizer + cost.memory.activations);
  EXPECT_TRUE(cost.memory.fits());
  EXPECT_GT(cost.total_flops, 2 * cost.forward_flops);
  EXPECT_FALSE(std::filesystem::exists(folder / "run")) << "a dry run writes nothing";
}

TEST(DryRun, CountsTheLossOfTheWholeBatchAndTheSecondForwardPass) {
  const TemporaryFolder folder;
  const DryRunReport whole = measure_step(tiny_config(folder / "run"));
  const DryRunReport parts = measure_step(tiny_config(folder / "run", {"training.micro_batch=2"}));
  EXPECT_DOUBLE_EQ(parts.forward_flops, whole.forward_flops);
  // All but the loss is computed a second time.
  const double loss = 2.0 * 8 * 8;  // a sample's products with 8 texts of width 8
  EXPECT_DOUBLE_EQ(parts.total_flops, whole.total_flops + whole.forward_flops - loss);
}

TEST(DryRun, SaysWhereMemoryGoes) {
  const TemporaryFolder folder;
  const Config config = tiny_config(folder / "run", {"training.ema={}", "training.micro_batch=2"});
  PlanSettings settings;
  settings.ranks = 4;
  settings.available = 1000;
  const std::string text = to_text(measure_step(config, settings), config);
  for (const char* part : {"parameters",
                           "samples a step    32: batch 8 x accumulation 1 x ranks 4; the towers see 2 at a time",
                           "memory plan of each of 4 ranks, on the CPU",
                           "  weights ",
                           "  gradients ",
                           "  optimizer ",
                           "  averaged weights ",
                           "  gradient buckets ",
                           "  batch ",
                           "  activations ",
                           "of the towers, 2 samples",
                           "  features ",
                           "  loss ",
                           "8 x 32 pairs",
                           "  peak of a step ",
                           "  checkpoint ",
                           "of 1000 B that are free for it: does not fit",
                           "ways out",
                           "a smaller training.micro_batch (or auto)",
                           "model.image.encoder.grad_checkpointing: true; model.text.encoder.grad_checkpointing: true",
                           "a smaller data.loader.batch_size"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\nin\n" << text;
}

}  // namespace
}  // namespace tessera
