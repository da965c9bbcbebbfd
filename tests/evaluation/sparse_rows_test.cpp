#include "src/evaluation/metrics/sparse.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "src/evaluation/metrics/cosine.h"

namespace tessera::metrics {
namespace {

/// Returns rows in which about one entry in five is nonzero; all entries of the second row are 0.
at::Tensor some_rows(std::int64_t count) {
  const at::Tensor rows = at::rand({count, 40}) * at::rand({count, 40}).lt(0.2);
  rows[1] = 0;
  return rows;
}

TEST(SparseRows, HaveTheCosinesOfDenseRows) {
  at::manual_seed(1);
  const at::Tensor a = some_rows(9), b = some_rows(7);
  const at::Tensor expected = unit_rows(a).matmul(unit_rows(b).t());
  for (const at::Tensor& left : {a, a.to_sparse()})
    for (const at::Tensor& right : {b, b.to_sparse(), b.to(at::kDouble).to_sparse()})
      EXPECT_LT((sparse_cosines(left, right) - expected).abs().max().item<double>(), 1e-14);
  EXPECT_EQ(sparse_cosines(a, b.slice(0, 0, 0)).sizes(), (at::IntArrayRef{9, 0}));
  EXPECT_THROW(sparse_cosines(a, b.slice(1, 0, 5)), c10::Error);
}

TEST(SparseRows, NarrowLikeDenseRows) {
  at::manual_seed(2);
  const at::Tensor rows = some_rows(9), sparse = rows.to_sparse();
  for (const auto& [begin, count] : {std::pair(0, 9), {0, 1}, {1, 1}, {3, 4}, {8, 1}, {5, 0}}) {
    const at::Tensor part = narrow_rows(sparse, begin, count);
    EXPECT_TRUE(part.is_coalesced());
    EXPECT_TRUE(part.to_dense().equal(rows.narrow(0, begin, count))) << begin << ' ' << count;
    EXPECT_TRUE(narrow_rows(rows, begin, count).equal(rows.narrow(0, begin, count)));
  }
}

TEST(SparsityMeter, CountsBatchesLikeTheWhole) {
  at::manual_seed(3);
  const at::Tensor rows = some_rows(9);
  SparsityMeter meter;
  EXPECT_EQ(meter.mean_active(), 0);
  meter.add(rows.narrow(0, 0, 4));
  meter.add(rows.narrow(0, 4, 5).to_sparse());
  const at::Tensor share = rows.gt(0).to(at::kDouble).mean(0);
  EXPECT_EQ(meter.rows(), 9);
  EXPECT_NEAR(meter.mean_active(), share.sum().item<double>(), 1e-12);
  EXPECT_NEAR(meter.expected_flops(), share.square().sum().item<double>(), 1e-12);
  EXPECT_EQ(meter.dead_columns(), share.eq(0).sum().item<std::int64_t>());
  EXPECT_GT(meter.dead_columns(), 0);
}

}  // namespace
}  // namespace tessera::metrics
