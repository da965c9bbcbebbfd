#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "src/training/step/batch_upload.h"
#include "src/training/step/step_pacer.h"

namespace tessera {
namespace {

TEST(StepPacer, StartsNoStepWhileTwoAreRunning) {
  std::vector<int> waited;
  int made = 0;
  StepPacer pacer([&]() -> std::function<void()> { return [&waited, step = made] { waited.push_back(step); }; });
  for (; made < 5; ++made) {
    pacer.begin_step();
    // Steps 0 and 1 start without waiting. Each later step k starts when step k - 2 is done.
    EXPECT_EQ(static_cast<int>(waited.size()), std::max(0, made - 1)) << made;
    if (!waited.empty()) {
      EXPECT_EQ(waited.back(), made - 2);
    }
    pacer.end_step();
  }
}

TEST(StepPacer, DoesNotWaitOnTheCpu) {
  const std::function<void()> done = mark_device(at::kCPU);
  done();
}

TEST(StepPacer, MarkWaitsForTheWorkBeforeItOnAGpu) {
  if (!at::hasCUDA()) GTEST_SKIP() << "no GPU";
  const at::Device gpu(at::kCUDA, 0);
  at::Tensor product = at::ones({2048, 2048}, at::TensorOptions(gpu));
  for (int i = 0; i < 20; ++i) product = at::matmul(product, product) / 2048;
  const at::Tensor copy = at::zeros({2048, 2048}, at::TensorOptions().pinned_memory(true));
  copy.copy_(product, /*non_blocking=*/true);
  mark_device(gpu)();
  EXPECT_EQ(copy[7][9].item<float>(), 1);
}

TEST(BatchUpload, ReturnsTheBatchItselfOnTheCpu) {
  Batch batch;
  batch.images["image"].pixels = at::ones({2, 3});
  batch.keys = {"a", "b"};
  const Batch there = BatchUpload(at::kCPU)(batch);
  EXPECT_TRUE(there.images.at("image").pixels.is_same(batch.images.at("image").pixels));
  EXPECT_EQ(there.keys, batch.keys);
}

TEST(BatchUpload, ComputeStreamWaitsForTheBatchOnAGpu) {
  if (!at::hasCUDA()) GTEST_SKIP() << "no GPU";
  const at::Device gpu(at::kCUDA, 0);
  const BatchUpload upload(gpu);
  at::Tensor sum = at::zeros({}, at::TensorOptions(gpu));
  for (int i = 1; i <= 20; ++i) {
    Batch batch;
    batch.images["image"].pixels = at::full({1 << 24}, i, at::TensorOptions().dtype(at::kByte).pinned_memory(true));
    sum += upload(batch).images.at("image").pixels.max();
  }
  EXPECT_EQ(sum.item<float>(), 210);
}

}  // namespace
}  // namespace tessera
