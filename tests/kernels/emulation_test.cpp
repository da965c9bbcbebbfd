// Tests that the emulation finds the errors that it is meant to find.
#include <cmath>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/emulation/cuda_emulation.h"

namespace tessera::kernels::emulation {
namespace {

TEST(Emulation, EveryThreadRunsOnceWithItsIndices) {
  std::vector<int> visits(3 * 2 * 70);
  run(dim3(3, 2), dim3(70), 0, [&] { ++visits[(blockIdx.y * gridDim.x + blockIdx.x) * blockDim.x + threadIdx.x]; });
  EXPECT_EQ(visits, std::vector<int>(3 * 2 * 70, 1));
}

TEST(Emulation, BarrierSeparatesWritesFromReads) {
  std::vector<unsigned> seen(96);
  run(dim3(1), dim3(96), 96 * sizeof(unsigned), [&] {
    unsigned* const shared = reinterpret_cast<unsigned*>(dynamic_shared());
    for (unsigned round = 0; round < 3; ++round) {
      shared[threadIdx.x] = threadIdx.x + round;
      __syncthreads();
      seen[threadIdx.x] = shared[95 - threadIdx.x];
      __syncthreads();
    }
  });
  for (unsigned i = 0; i < 96; ++i) EXPECT_EQ(seen[i], 95 - i + 2);
}

TEST(Emulation, ShufflesAndVotesStayWithinTheWarp) {
  std::vector<int> sums(64), votes(64);
  run(dim3(1), dim3(64), 0, [&] {
    int sum = static_cast<int>(threadIdx.x);
    for (int mask = 16; mask > 0; mask /= 2) sum += __shfl_xor_sync(~0u, sum, mask);
    sums[threadIdx.x] = sum;
    votes[threadIdx.x] = static_cast<int>(__ballot_sync(~0u, threadIdx.x % 32 == 3 || threadIdx.x == 32));
  });
  EXPECT_EQ(sums[5], 31 * 16);
  EXPECT_EQ(sums[40], 31 * 16 + 32 * 32);
  EXPECT_EQ(votes[0], 8);
  EXPECT_EQ(votes[63], 9);
}

TEST(Emulation, AsynchronousCopyCompletesAtTheWait) {
  alignas(16) const float source[4] = {1, 2, 3, 4};
  float before = 0.0f, between = 0.0f, after = 0.0f;
  run(dim3(1), dim3(1), 32, [&] {
    float* const shared = reinterpret_cast<float*>(dynamic_shared());
    copy_later(shared, source);
    commit_copies();
    copy_later(shared + 4, nullptr);
    commit_copies();
    before = shared[0];
    wait_for_copies(1);
    between = shared[4];
    wait_for_copies(0);
    after = shared[3] + shared[4];
  });
  EXPECT_TRUE(std::isnan(before));
  EXPECT_TRUE(std::isnan(between));
  EXPECT_EQ(after, 4.0f);
}

TEST(Emulation, RaceGivesDifferentResultsInDifferentSchedules) {
  const auto racing = [] {
    std::vector<unsigned> seen(32);
    run(dim3(1), dim3(32), 32 * sizeof(unsigned), [&] {
      unsigned* const shared = reinterpret_cast<unsigned*>(dynamic_shared());
      shared[threadIdx.x] = threadIdx.x;
      seen[threadIdx.x] = shared[31 - threadIdx.x];  // no barrier
    });
    return seen;
  };
  const std::vector<unsigned> forward = racing();
  set_schedule(Schedule::kReverse);
  const std::vector<unsigned> reverse = racing();
  set_schedule(Schedule::kForward);
  EXPECT_NE(forward, reverse);
}

TEST(Emulation, BlocksRunInTheOrderOfTheScheduleAndCountWithAtomicAdditions) {
  const auto ranks = [] {
    unsigned counter = 0;
    std::vector<unsigned> before(6);  // how many blocks ran before each block
    run(dim3(3, 2), dim3(33), 0, [&] {
      __threadfence();
      __syncthreads();
      if (threadIdx.x == 0) before[blockIdx.y * 3 + blockIdx.x] = atomicAdd(&counter, 1u);
    });
    EXPECT_EQ(counter, 6u);
    return before;
  };
  EXPECT_EQ(ranks(), (std::vector<unsigned>{0, 1, 2, 3, 4, 5}));
  set_schedule(Schedule::kReverse);
  EXPECT_EQ(ranks(), (std::vector<unsigned>{5, 4, 3, 2, 1, 0}));
  set_schedule(Schedule::kForward);
}

TEST(EmulationDeathTest, BarrierThatSomeThreadsMissStopsTheRun) {
  EXPECT_DEATH(run(dim3(1), dim3(32), 0,
                   [] {
                     if (threadIdx.x < 16) __syncwarp();
                     if (threadIdx.x >= 16) __syncthreads();
                   }),
               "deadlock");
}

TEST(EmulationDeathTest, MisalignedAddressesStopTheRun) {
  alignas(16) static float memory[12];
  const auto in_one_thread = [](auto body) { run(dim3(1), dim3(1), 0, body); };
  const char* const message = "not a multiple of its size";
  in_one_thread([] {
    copy_later(memory, memory + 4);
    commit_copies();
    wait_for_copies(0);
    require_alignment(memory + 2, alignof(float2));
  });
  EXPECT_DEATH(in_one_thread([] { copy_later(memory, memory + 6); }), message);
  EXPECT_DEATH(in_one_thread([] { copy_later(memory + 1, memory); }), message);
  EXPECT_DEATH(in_one_thread([] { require_alignment(memory + 1, alignof(float2)); }), message);
}

}  // namespace
}  // namespace tessera::kernels::emulation
