#include <gtest/gtest.h>

#include "src/training/log/mfu.h"
#include "tests/training/tiny_run.h"

namespace tessera {
namespace {

TEST(Mfu, RaisesAndReportsAnExceededMeasuredPeak) {
  Mfu mfu(tiny_config("runs/none", {"log.peak_tflops=null"}), at::kCPU);
  EXPECT_LT(mfu.share(1e-6), 1.0);
  EXPECT_EQ(mfu.news(), std::nullopt);
  EXPECT_EQ(mfu.share(1e6), 1.0) << "more than any machine reaches";
  const std::string line = mfu.news().value_or("");
  EXPECT_TRUE(line.starts_with("training reached 1000000 TFLOP/s, more than the measured peak of ")) << line;
  EXPECT_TRUE(contains(line, ": from now on MFU is relative to 1000000 TFLOP/s"));
  EXPECT_EQ(mfu.news(), std::nullopt) << "once";
  EXPECT_EQ(mfu.share(5e5), 0.5);
}

TEST(Mfu, KeepsThePeakFromTheSettings) {
  Mfu mfu(tiny_config("runs/none", {"log.peak_tflops=0.5"}), at::kCPU);
  EXPECT_EQ(mfu.share(1.0), 2.0);
  EXPECT_EQ(mfu.news(), std::nullopt);
}

TEST(Mfu, ReportsTheTextLengthOfItsCount) {
  const Mfu mfu(tiny_config("runs/none"), at::kCPU);
  EXPECT_TRUE(contains(mfu.describe("texts of up to 8 tokens"),
                       " per sample, forward and backward, in the first batch with texts of up to 8 tokens; MFU"));
  EXPECT_TRUE(contains(mfu.describe(), " per sample, forward and backward; MFU"));
}

}  // namespace
}  // namespace tessera
