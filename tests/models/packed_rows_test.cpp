#include <cmath>
#include <limits>

#include "src/models/packed_rows.h"
#include "src/models/per_sample_rng.h"
#include "src/models/transformer.h"
#include "tests/models/small_models.h"
#include "tests/support/gradcheck.h"
#include "tests/support/test_name.h"

namespace tessera {
namespace {

const at::Tensor& holes() {  // the second row is only padding
  static const at::Tensor mask =
      at::tensor({1, 0, 1, 1, 0, 0, 0, 0, 0, 1, 0, 0}, at::kLong).view({3, 4}).to(at::kBool);
  return mask;
}

TEST(PackedRows, RecordThePositionOfEachRealToken) {
  const PackedRows rows = packed_rows(holes());
  ASSERT_TRUE(rows.defined());
  EXPECT_EQ(rows.rows, 3);
  EXPECT_EQ(rows.length, 4);
  EXPECT_EQ(rows.longest, 3);
  EXPECT_TRUE(at::equal(rows.places, at::tensor({0, 2, 3, 9}, at::kLong)));
  EXPECT_TRUE(at::equal(rows.row_of, at::tensor({0, 0, 0, 2}, at::kLong)));
  EXPECT_TRUE(at::equal(rows.offsets, at::tensor({0, 3, 3, 4}, at::kInt)));
  EXPECT_TRUE(at::equal(packed_rows(holes(), at::tensor({3, 0, 1}, at::kLong)).places, rows.places));
}

TEST(PackedRows, AreNotUsedWithoutPadding) {
  EXPECT_FALSE(packed_rows({}).defined());
  EXPECT_FALSE(packed_rows(at::ones({2, 3}, at::kBool)).defined());
  EXPECT_FALSE(packed_rows(at::ones({0, 3}, at::kBool)).defined());
  EXPECT_THROW(packed_rows(holes(), at::tensor({3, 0}, at::kLong)), c10::Error);
}

TEST(PackedRows, AreEmptyForTextsWithoutTokens) {
  const PackedRows rows = packed_rows(at::zeros({2, 3}, at::kBool));
  ASSERT_TRUE(rows.defined());
  EXPECT_TRUE(at::equal(unpack(at::empty({0, 5}), rows), at::zeros({2, 3, 5})));
}

TEST(PackedRows, UnpackToTheirPositions) {
  const at::Tensor x = at::randn({3, 4, 2}, at::kDouble);
  const at::Tensor wild = x.masked_fill(holes().logical_not().unsqueeze(2), std::numeric_limits<double>::quiet_NaN());
  const PackedRows rows = packed_rows(holes());
  expect_close(unpack(pack(wild, rows), rows), zero_padding(x, holes()), 0);
  const at::Tensor leaf = wild.clone().requires_grad_(true);
  unpack(pack(leaf, rows), rows).square().sum().backward();
  expect_close(leaf.grad(), zero_padding(2 * x, holes()), 1e-12);
}

// Lengths of 100 rows of up to 12 tokens, among them empty and full rows.
at::Tensor many_lengths() {
  return (at::arange(100) * 7).remainder(13).clamp_max(12);
}

TEST(PackedRows, WithABoundHaveSpareTokensAtTheEnd) {
  const at::Tensor lengths = many_lengths(), mask = at::arange(12) < lengths.unsqueeze(1);
  const PackedRows exact = packed_rows(mask, lengths), rows = packed_rows(mask, length_bound(lengths));
  const std::int64_t total = lengths.sum().item<std::int64_t>();
  ASSERT_GT(total, kPackingBucket);
  ASSERT_LT(total, 2 * kPackingBucket);
  EXPECT_EQ(bound_of(length_bound(lengths)), 2 * kPackingBucket);
  EXPECT_EQ(bound_of(lengths), 0);
  EXPECT_EQ(length_bound(lengths.view({10, 10})).sizes(), at::IntArrayRef({10, 10}));
  EXPECT_TRUE(at::equal(rows.places.narrow(0, 0, total), exact.places));
  EXPECT_TRUE(at::equal(rows.row_of.narrow(0, 0, total), exact.row_of));
  EXPECT_TRUE(at::equal(rows.offsets.narrow(0, 0, 101), exact.offsets));
  EXPECT_EQ(rows.places.size(0), 2 * kPackingBucket);
  EXPECT_EQ(rows.offsets[-1].item<std::int64_t>(), 2 * kPackingBucket);
  EXPECT_LE(rows.offsets.diff().max().item<std::int64_t>(), 12) << "no spare row is longer than a text";
}

TEST(PackedRows, WithABoundGiveTheSameResults) {
  at::manual_seed(4);
  const at::Tensor lengths = many_lengths(), mask = at::arange(12) < lengths.unsqueeze(1);
  const PackedRows exact = packed_rows(mask, lengths), rows = packed_rows(mask, length_bound(lengths));
  const at::Tensor x = at::randn({100, 12, 8}, at::kDouble).masked_fill(mask.logical_not().unsqueeze(2), NAN), weight = at::randn({8, 8}, at::kDouble);
  for (const bool causal : {false, true}) {
    std::vector<at::Tensor> results;
    for (const PackedRows& each : {exact, rows}) {
      const at::Tensor leaf = x.clone().requires_grad_(), w = weight.clone().requires_grad_();
      const at::Tensor packed = at::matmul(pack(leaf, each), w);
      const at::Tensor out = unpack(attend_in_rows(packed, packed, packed.sin(), 2, each, causal), each);
      out.square().sum().backward();
      results.insert(results.end(), {out.detach(), leaf.grad(), w.grad()});
    }
    for (std::size_t i = 0; i < 3; ++i) expect_close(results[i + 3], results[i], 1e-12);
  }
}

TEST(PackedRows, WithABoundHaveTheSameKeys) {
  const at::Tensor lengths = many_lengths(), mask = at::arange(12) < lengths.unsqueeze(1);
  const RowRngScope keyed(row_keys(3, 0, 1, 100));
  const at::Tensor exact = token_keys(100, 12, at::kCPU, packed_rows(mask, lengths));
  const RowRngScope again(row_keys(3, 0, 1, 100));
  const at::Tensor bounded = token_keys(100, 12, at::kCPU, packed_rows(mask, length_bound(lengths)));
  EXPECT_TRUE(at::equal(bounded.narrow(0, 0, exact.size(0)), exact));
}

TEST(PackedRows, GradientsMatchFiniteDifferences) {
  at::manual_seed(3);
  const PackedRows rows = packed_rows(holes());
  const at::Tensor x = at::randn({3, 4, 2}, at::kDouble).requires_grad_(true);
  const at::Tensor y = at::randn({4, 2}, at::kDouble).requires_grad_(true);
  expect_gradients_match({x, y}, [&] { return pack(x, rows).sin().sum() + unpack(y, rows).exp().sum(); });
}

/// Compares packed rows with padded rows. attention_on_device_test.cpp compares the attention itself with its definition.
class PackedAttention : public testing::TestWithParam<std::string> {
 protected:
  bool causal() const { return GetParam() == "causal"; }
  AttentionMask packed_mask(const at::Tensor& mask) const {
    AttentionMask out;
    out.causal = causal();
    out.packed = packed_rows(mask);
    return out;
  }
  AttentionMask padded_mask(const at::Tensor& mask) const {
    return causal() ? causal_attention_mask(mask, mask.size(1)) : self_attention_mask(mask, mask.size(1));
  }
};

INSTANTIATE_TEST_SUITE_P(Kinds, PackedAttention, testing::Values("causal", "bidirectional"), test_name<std::string>);

TEST_P(PackedAttention, TransformerWithDropPathMatchesPaddedRows) {
  TransformerSettings settings;
  settings.width = 8, settings.layers = 3, settings.heads = 2;
  settings.drop_path = 0.5;
  for (const bool again : {false, true}) {
    settings.grad_checkpointing = again;
    at::manual_seed(6);
    Transformer transformer(settings, BlockInitialization::text);
    transformer.to(at::kDouble);
    const at::Tensor mask = length_mask({4, 1, 0, 3}, 4), x = at::randn({4, 4, 8}, at::kDouble);
    const auto gradients = [&](const at::Tensor& out) {
      transformer.zero_grad();
      out.square().sum().backward();
      std::vector<at::Tensor> all;
      for (const at::Tensor& parameter : transformer.parameters()) all.push_back(parameter.grad().clone());
      return all;
    };
    const auto run = [&](const at::Tensor& input, const AttentionMask& attention) {
      const RowRngScope keyed(row_keys(7, 0, 1, 4));
      return transformer.forward(input, {attention});
    };
    const AttentionMask packed = packed_mask(mask);
    const at::Tensor padded = zero_padding(run(zero_padding(x, mask), padded_mask(mask)), mask);
    const at::Tensor out = unpack(run(pack(x, packed.packed), packed), packed.packed);
    expect_close(out, padded, 1e-12);
    const std::vector<at::Tensor> ours = gradients(out), theirs = gradients(padded);
    for (std::size_t i = 0; i < ours.size(); ++i) expect_close(ours[i], theirs[i], 1e-12);
  }
}

}  // namespace
}  // namespace tessera
