#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "src/models/per_sample_rng.h"

namespace tessera {
namespace {

at::Tensor drawn(const at::Tensor& keys, std::int64_t count) {
  const RowRngScope rows(keys);
  return row_uniform(keys.size(0), count, at::kCPU);
}

TEST(RowUniform, IsUniformInTheOpenInterval) {
  const at::Tensor u = drawn(row_keys(1, 0, 1, 1000), 1000);
  EXPECT_EQ(u.scalar_type(), at::kFloat);
  EXPECT_GT(u.min().item<float>(), 0);
  EXPECT_LT(u.max().item<float>(), 1);
  const at::Tensor counts = at::histc(u, 10, 0, 1) / 1e5;  // counts relative to their mean; standard deviation 0.003
  EXPECT_LT((counts - 1).abs().max().item<float>(), 0.012);
}

TEST(RowUniform, DoesNotDependOnTheBatchOfARow) {
  const at::Tensor keys = row_keys(2, 0, 1, 6), whole = drawn(keys, 5);
  EXPECT_TRUE(at::equal(drawn(keys.slice(0, 2, 5), 5), whole.slice(0, 2, 5)));      // a chunk of the batch
  EXPECT_TRUE(at::equal(drawn(row_keys(2, 1, 2, 3), 5), whole.slice(0, 1, 6, 2)));  // rank 1 of 2
  EXPECT_FALSE(at::equal(whole[0], whole[1]));
  EXPECT_FALSE(at::equal(drawn(row_keys(3, 0, 1, 6), 5), whole)) << "another step";
}

TEST(RowUniform, ChangesWithEachCallAndRepeatsInEachScope) {
  const at::Tensor keys = row_keys(4, 0, 1, 3);
  const auto twice = [&] {
    const RowRngScope rows(keys);
    const at::Tensor first = row_uniform(3, 4, at::kCPU);
    return at::stack({first, row_uniform(3, 4, at::kCPU)});
  };
  const at::Tensor once = twice();
  EXPECT_EQ((once[0] == once[1]).sum().item<std::int64_t>(), 0);
  EXPECT_TRUE(at::equal(twice(), once));
}

TEST(RowUniform, FollowsTheDefaultGeneratorOutsideOfAScope) {
  at::manual_seed(5);
  const at::Tensor first = row_uniform(2, 3, at::kCPU), second = row_uniform(2, 3, at::kCPU);
  EXPECT_FALSE(at::equal(first, second));
  at::manual_seed(5);
  EXPECT_TRUE(at::equal(row_uniform(2, 3, at::kCPU), first));
  const RowRngScope none{at::Tensor()};
  EXPECT_TRUE(at::equal(row_uniform(2, 3, at::kCPU), second));
}

TEST(RowKeys, OfAViewDoNotDependOnOtherViews) {
  const RowRngScope rows(row_keys(6, 0, 1, 3));
  const at::Tensor local = row_keys_of_views({"local"});
  const at::Tensor both = row_keys_of_views({"global", "local"});
  EXPECT_TRUE(at::equal(both.slice(0, 3), local));
  EXPECT_FALSE(at::equal(both.slice(0, 0, 3), local));
  EXPECT_THROW(row_uniform(4, 1, at::kCPU), c10::Error) << "keys of 3 rows, a batch of 4";
}

}  // namespace
}  // namespace tessera
