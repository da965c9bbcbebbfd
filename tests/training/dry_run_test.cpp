#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/training/tiny_run.h"
#include <tessera/training/dry_run.h>
#include <tessera/training/step_meter.h>

namespace tessera {
namespace {

TEST(FlopCounter, CountsProductsForwardAndBackward) {
  const at::Tensor x = at::randn({4, 6}), w = at::randn({6, 5}).set_requires_grad(true);
  const FlopCounter counter;
  const at::Tensor y = at::mm(x, w);
  EXPECT_EQ(counter.flops(), 2 * 4 * 6 * 5);
  y.sum().backward();
  EXPECT_EQ(counter.flops(), 2 * 2 * 4 * 6 * 5) << "only the weight needs a gradient: one product more";
}

TEST(FlopCounter, CountsConvolutionsByOutputPixel) {
  const at::Tensor x = at::randn({2, 3, 8, 8}), w = at::randn({7, 3, 4, 4}).set_requires_grad(true);
  const FlopCounter counter;
  const at::Tensor y = at::conv2d(x, w, {}, 4);
  const double forward = 2.0 * 2 * 2 * 2 * 7 * 3 * 4 * 4;
  EXPECT_EQ(counter.flops(), forward);
  y.sum().backward();
  EXPECT_EQ(counter.flops(), 2 * forward);
}

TEST(FlopCounter, CountsFusedAttention) {
  const at::Tensor q = at::randn({2, 3, 5, 8});
  const FlopCounter counter;
  at::scaled_dot_product_attention(q, q, q);
  EXPECT_EQ(counter.flops(), 2.0 * 2 * 2 * 3 * 5 * 5 * 8);
}

TEST(MemoryMeter, SeesWhatIsHeldAndThePeak) {
  const MemoryMeter meter;
  const at::Tensor kept = at::empty({1024}, at::kFloat);
  { const at::Tensor dropped = at::empty({4096}, at::kFloat); }
  EXPECT_EQ(meter.held(), 4096);
  EXPECT_EQ(meter.peak(), 5 * 4096);
}

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
