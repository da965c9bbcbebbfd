#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "src/base/recomputing.h"
#include "src/measure/step_meter.h"
#include <tessera/ops/activation_checkpoint.h>

namespace tessera {
namespace {

TEST(FlopCounter, CountsProductsForwardAndBackward) {
  const at::Tensor x = at::randn({4, 6}), w = at::randn({6, 5}).set_requires_grad(true);
  const FlopCounter counter;
  const at::Tensor y = at::mm(x, w);
  EXPECT_EQ(counter.flops(), 2 * 4 * 6 * 5);
  y.sum().backward();
  EXPECT_EQ(counter.flops(), 2 * 2 * 4 * 6 * 5) << "only the weight needs a gradient, which takes one more product";
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

TEST(FlopCounter, CountsAttentionInPackedRowsByTheirLengths) {
  const at::Tensor q = at::randn({6, 3, 8}), one = q.unsqueeze(0), offsets = at::tensor({0, 2, 6}, at::kInt);
  const double product = 2.0 * 3 * 8 * (2 * 2 + 4 * 4);
  const FlopCounter counter;
  // Only GPUs have these operators, but the calls are counted before they fail.
  EXPECT_THROW(at::_flash_attention_forward(q, q, q, offsets, offsets, 4, 4, 0.0, false, false), c10::Error);
  EXPECT_EQ(counter.flops(), 2 * product);
  EXPECT_THROW(at::_efficient_attention_forward(one, one, one, {}, offsets, offsets, 4, 4, 0.0, 0), c10::Error);
  EXPECT_EQ(counter.flops(), 4 * product);
  EXPECT_THROW(at::_flash_attention_forward(one, one, one, {}, {}, 6, 6, 0.0, false, false), c10::Error);
  EXPECT_EQ(counter.flops(), 4 * product) << "fused attention makes such calls, and is counted itself";
}

TEST(FlopCounter, CountsRecomputationSeparately) {
  const at::Tensor x = at::randn({4, 6}), w = at::randn({6, 5}).set_requires_grad(true);
  const double product = 2.0 * 4 * 6 * 5;
  const FlopCounter counter;
  const at::Tensor y = checkpointed([](const std::vector<at::Tensor>& in) { return at::mm(in[0], in[1]); }, {x, w});
  EXPECT_EQ(counter.recomputed(), 0);
  y.sum().backward();
  EXPECT_EQ(counter.flops(), 3 * product);
  EXPECT_EQ(counter.recomputed(), product);
  EXPECT_FALSE(Recomputing::now());
}

TEST(FlopCounter, FusedAttentionComputesItsScoresTwice) {
  const at::Tensor q = at::randn({2, 3, 5, 8}).set_requires_grad(true);
  const FlopCounter counter;
  at::scaled_dot_product_attention(q, q, q).sum().backward();
  const double product = 2.0 * 2 * 3 * 5 * 5 * 8;
  EXPECT_EQ(counter.flops(), 7 * product);
  EXPECT_EQ(counter.recomputed(), product);
}

TEST(MemoryMeter, ReportsHeldMemoryAndThePeak) {
  const MemoryMeter meter;
  const at::Tensor kept = at::empty({1024}, at::kFloat);
  { const at::Tensor dropped = at::empty({4096}, at::kFloat); }
  EXPECT_EQ(meter.held(), 4096);
  EXPECT_EQ(meter.peak(), 5 * 4096);
}

TEST(MemoryMeter, AnAllocationAboveTheLimitThrowsAndSmallerOnesStillWork) {
  const MemoryMeter meter(10000);
  const at::Tensor kept = at::empty({1024}, at::kFloat);
  EXPECT_THROW(at::empty({4096}, at::kFloat), MemoryLimitExceeded);
  EXPECT_EQ(meter.held(), 4096) << "the refused allocation must not count";
  const at::Tensor fits = at::ones({1024}, at::kFloat);
  EXPECT_EQ(fits.sum().item<float>(), 1024.0f);
  EXPECT_LE(meter.peak(), 10000);
}

TEST(MemoryMeter, TheLimitAppliesInTheBackwardPass) {
  const at::Tensor x = at::ones({64, 64}).set_requires_grad(true);
  const MemoryMeter meter(64 * 64 * 4 * 2);
  const at::Tensor y = x.exp();
  EXPECT_THROW(y.square().square().sum().backward(), MemoryLimitExceeded);
}

}  // namespace
}  // namespace tessera
