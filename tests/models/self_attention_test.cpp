#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>

#include "src/measure/step_meter.h"
#include "src/models/autocast.h"
#include "src/models/self_attention.h"
#include "tests/models/small_models.h"

namespace tessera {
namespace {

constexpr std::int64_t kOwnHeads = 2, kColumns = 4;

AttentionMask packed_mask(std::vector<std::int64_t> lengths, std::int64_t length, bool causal) {
  AttentionMask mask;
  mask.packed = packed_rows(length_mask(std::move(lengths), length));
  mask.causal = causal;
  return mask;
}

// Random qkv, with `rows` before the last dimension.
at::Tensor random_qkv(at::IntArrayRef rows, at::ScalarType type) {
  at::manual_seed(1);
  std::vector<std::int64_t> sizes = rows.vec();
  sizes.push_back(3 * kOwnHeads * kColumns);
  return at::randn(sizes, at::kDouble).to(type).requires_grad_();
}

TuningKey key_of(const at::Tensor& qkv, const AttentionMask& mask = {}) {
  return attention_tuning_key(attention_problem(qkv, kOwnHeads, mask).value());
}

// The output of attention for random tokens, and the gradient of qkv.
std::vector<at::Tensor> run_attention(at::IntArrayRef rows, const AttentionMask& mask, at::ScalarType type = at::kDouble) {
  const at::Tensor qkv = random_qkv(rows, type);
  const at::Tensor out = self_attention(qkv, kOwnHeads, mask);
  return {out.detach(), torch::autograd::grad({out}, {qkv}, {at::randn(out.sizes(), at::kDouble).to(type)})[0]};
}

void expect_engine_equals_libtorch(at::IntArrayRef rows, const AttentionMask& mask) {
  const std::vector<at::Tensor> theirs = run_attention(rows, mask);
  const auto composed = [&](at::ScalarType type) {
    const ForcedConfiguration forced(key_of(random_qkv(rows, type), mask), "composed");
    return run_attention(rows, mask, type);
  };
  const std::vector<at::Tensor> ours = composed(at::kDouble), narrow = composed(at::kBFloat16);
  for (std::size_t i = 0; i < theirs.size(); ++i) {
    expect_close(ours[i], theirs[i], 1e-12);
    EXPECT_TRUE(ours[i].is_contiguous());
    EXPECT_EQ(narrow[i].scalar_type(), at::kBFloat16);
    expect_close(narrow[i].to(at::kDouble), theirs[i], 0.1);
  }
}

TEST(SelfAttention, OfTheEngineEqualsLibTorch) {
  for (const bool causal : {false, true}) {
    expect_engine_equals_libtorch({3, 5}, causal ? causal_attention_mask({}, 5) : AttentionMask{});
    expect_engine_equals_libtorch({10}, packed_mask({4, 0, 1, 5}, 6, causal));
  }
}

TEST(SelfAttention, WithAnExplicitMaskIsLibTorchs) {
  const at::Tensor qkv = random_qkv({2, 5}, at::kDouble);
  EXPECT_FALSE(attention_problem(qkv, kOwnHeads, self_attention_mask(length_mask({3, 5}, 5), 5)));
  EXPECT_TRUE(attention_problem(qkv, kOwnHeads, causal_attention_mask(length_mask({3, 5}, 5), 5)));
}

TEST(SelfAttention, IsLibTorchsUnlessAskedOtherwise) {
  const at::Tensor qkv = random_qkv({2, 3}, at::kFloat);
  const auto graph = [&] { return self_attention(qkv, kOwnHeads, {}).grad_fn()->next_edge(0).function->name(); };  // the last is a view
  const std::string usual = graph();
  const auto with = [&](const char* configuration) {
    const ForcedConfiguration forced(key_of(qkv), configuration);
    return graph();
  };
  EXPECT_NE(with("composed"), usual);
  EXPECT_EQ(with("libtorch"), usual);
}

TEST(SelfAttention, ListsTheConfigurationsOfAProblem) {
  const std::vector<std::string> expected = {"libtorch", "composed"};
  EXPECT_EQ(attention_configurations(attention_problem(random_qkv({2, 3}, at::kBFloat16), kOwnHeads, {}).value()), expected);
}

TEST(SelfAttention, RefusesUnknownConfigurations) {
  const ForcedConfiguration forced(key_of(random_qkv({2, 3}, at::kDouble)), "none/3");
  EXPECT_NE(error_of([] { run_attention({2, 3}, {}); }).find("this build has no attention none/3"), std::string::npos);
}

TEST(SelfAttention, HasNoSecondDerivativesWithAnEngine) {
  const at::Tensor qkv = random_qkv({2, 3}, at::kFloat);
  const ForcedConfiguration forced(key_of(qkv), "composed");
  EXPECT_EQ(error_of<c10::Error>([&] {
              torch::autograd::grad({self_attention(qkv, kOwnHeads, {}).sum()}, {qkv}, {}, std::nullopt, /*create_graph=*/true);
            }),
            "self-attention has no second derivatives with an engine other than LibTorch's");
}

TEST(SelfAttention, OfPackedRowsTakesTheFlopsOfTheirTokens) {
  const AttentionMask mask = packed_mask({4, 0, 1, 5}, 6, false);
  const ForcedConfiguration forced(key_of(random_qkv({10}, at::kDouble), mask), "composed");
  const FlopCounter counter;
  run_attention({10}, mask);
  constexpr std::int64_t kProduct = 2 * kOwnHeads * kColumns * (4 * 4 + 1 + 5 * 5);
  EXPECT_EQ(counter.flops(), 7 * kProduct);
  EXPECT_EQ(counter.recomputed(), kProduct);
}

}  // namespace
}  // namespace tessera
