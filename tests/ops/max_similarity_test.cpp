#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "tests/ops/largest_allocation.h"
#include "tests/support/error_of.h"
#include "tests/support/gradcheck.h"
#include <tessera/ops/max_similarity.h>

namespace tessera {
namespace {

struct SimilaritySample {
  at::Tensor patches, tokens, patch_keep, token_keep, grad_i2t, grad_t2i;

  SimilaritySample to(at::ScalarType dtype, at::Device device = at::kCPU) const {
    const auto leaf = [&](const at::Tensor& x) { return x.detach().to(device, dtype).requires_grad_(true); };
    return {leaf(patches),
            leaf(tokens),
            patch_keep.to(device),
            token_keep.to(device),
            grad_i2t.to(device, dtype),
            grad_t2i.to(device, dtype)};
  }
};

SimilaritySample random_sample(std::int64_t images, std::int64_t patches, std::int64_t texts, std::int64_t tokens,
                     std::int64_t width) {
  at::manual_seed(11);
  SimilaritySample s{at::randn({images, patches, width}, at::kDouble),
           at::randn({texts, tokens, width}, at::kDouble),
           at::rand({images, patches}) < 0.8,
           at::rand({texts, tokens}) < 0.6,
           at::randn({images, texts}, at::kDouble),
           at::randn({images, texts}, at::kDouble)};
  s.patch_keep.select(1, 0).fill_(true);
  return s;
}

struct SimilarityOutcome {
  at::Tensor i2t, t2i, grad_patches, grad_tokens;
};

SimilarityOutcome differentiate(const std::pair<at::Tensor, at::Tensor>& both, const SimilaritySample& s) {
  const auto gradients =
      torch::autograd::grad({both.first, both.second}, {s.patches, s.tokens}, {s.grad_i2t, s.grad_t2i});
  return {both.first.detach(), both.second.detach(), gradients[0], gradients[1]};
}

SimilarityOutcome tiled(const SimilaritySample& s, std::optional<std::int64_t> chunk = std::nullopt) {
  return differentiate(max_similarity(s.patches, s.tokens, s.patch_keep, s.token_keep, chunk), s);
}

// Returns the results on the GPU for rows in bfloat16. The gradients of the similarities are float32.
SimilarityOutcome on_gpu_in_bfloat16(const SimilaritySample& sample) {
  SimilaritySample s = sample.to(at::kFloat, at::kCUDA);
  s.patches = s.patches.detach().to(at::kBFloat16).requires_grad_(true);
  s.tokens = s.tokens.detach().to(at::kBFloat16).requires_grad_(true);
  return tiled(s);
}

// Computes the definition with plain operators, which hold all similarities [B, C, P, L] at once.
SimilarityOutcome composed(const SimilaritySample& s) {
  const at::Tensor all = at::einsum("ipd,jld->ijpl", {s.patches, s.tokens});
  const at::Tensor patch_keep = s.patch_keep.unsqueeze(1),
                   token_keep = s.token_keep.unsqueeze(0);  // [B, 1, P], [1, C, L]
  const at::Tensor best_token = std::get<0>(all.masked_fill(~token_keep.unsqueeze(2), -1e9).max(3));
  const at::Tensor best_patch = std::get<0>(all.masked_fill(~patch_keep.unsqueeze(3), -1e9).max(2));
  const at::Tensor i2t = best_token.masked_fill(~patch_keep, 0).sum(2) / patch_keep.sum(2);
  const at::Tensor t2i = best_patch.masked_fill(~token_keep, 0).sum(2) / token_keep.sum(2).clamp_min(1);
  return differentiate({i2t.masked_fill(~s.token_keep.any(1), 0), t2i}, s);
}

void expect_close(const SimilarityOutcome& ours, const SimilarityOutcome& theirs, double tolerance) {
  const auto close = [&](const char* what, const at::Tensor& a, const at::Tensor& b) {
    ASSERT_EQ(a.sizes(), b.sizes()) << what;
    EXPECT_TRUE(at::allclose(a.to(at::kCPU, at::kDouble), b.to(at::kCPU, at::kDouble), tolerance, tolerance)) << what;
  };
  close("i2t", ours.i2t, theirs.i2t);
  close("t2i", ours.t2i, theirs.t2i);
  close("gradient of patches", ours.grad_patches, theirs.grad_patches);
  close("gradient of tokens", ours.grad_tokens, theirs.grad_tokens);
}

const std::vector<std::vector<std::int64_t>> kSimilarityShapes = {
    {3, 6, 4, 5, 8}, {1, 1, 1, 1, 3}, {2, 49, 5, 9, 16}, {5, 20, 2, 33, 7}, {4, 7, 6, 1, 1}};

TEST(MaxSimilarity, TiledMatchesComposed) {
  for (const auto& shape : kSimilarityShapes) {
    SCOPED_TRACE(at::IntArrayRef(shape));
    SimilaritySample sample = random_sample(shape[0], shape[1], shape[2], shape[3], shape[4]);
    sample.token_keep[0].fill_(false);  // makes a text without tokens
    const SimilarityOutcome expected = composed(sample.to(at::kDouble));
    for (const std::optional<std::int64_t> chunk :
         {std::optional<std::int64_t>(), std::optional<std::int64_t>(1), std::optional<std::int64_t>(3)}) {
      expect_close(tiled(sample.to(at::kDouble), chunk), expected, 1e-12);
      expect_close(tiled(sample.to(at::kFloat), chunk), expected, 1e-4);
    }
  }
}

TEST(MaxSimilarity, GradientsMatchFiniteDifferences) {
  const SimilaritySample s = random_sample(2, 4, 3, 3, 3).to(at::kDouble);
  expect_gradients_match({s.patches, s.tokens}, [&] {
    const auto [i2t, t2i] = max_similarity(s.patches, s.tokens, s.patch_keep, s.token_keep, 2);
    return (i2t * s.grad_i2t + t2i * s.grad_t2i).sum();
  });
}

// Entries are small whole numbers, so products are exact and many are equal.
TEST(MaxSimilarity, FirstOfEqualMaximaGetsTheGradient) {
  at::manual_seed(2);
  SimilaritySample sample = random_sample(3, 20, 4, 7, 3);
  sample.patches = at::randint(-1, 2, {3, 20, 3}, at::kDouble);
  sample.tokens = at::randint(-1, 2, {4, 7, 3}, at::kDouble);
  const SimilarityOutcome expected = composed(sample.to(at::kDouble));
  expect_close(tiled(sample.to(at::kDouble)), expected, 1e-12);
  expect_close(tiled(sample.to(at::kFloat)), expected, 1e-5);
}

TEST(MaxSimilarity, UnkeptRowsHaveNoEffect) {
  const SimilaritySample plain = random_sample(3, 9, 4, 6, 8);
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat}) {
    SimilaritySample filled = plain;
    filled.patches = plain.patches.masked_fill(~plain.patch_keep.unsqueeze(-1), std::nan(""));
    filled.tokens = plain.tokens.masked_fill(~plain.token_keep.unsqueeze(-1), std::nan(""));
    expect_close(tiled(filled.to(dtype)), tiled(plain.to(dtype)), 1e-12);
  }
}

TEST(MaxSimilarity, AcceptsNonContiguousTensors) {
  const SimilaritySample plain = random_sample(3, 9, 4, 6, 8).to(at::kFloat);
  const auto strided = [](const at::Tensor& x) { return x.detach().mT().contiguous().mT(); };
  const SimilaritySample other{strided(plain.patches).requires_grad_(true),
                     strided(plain.tokens).requires_grad_(true),
                     strided(plain.patch_keep),
                     strided(plain.token_keep),
                     strided(plain.grad_i2t),
                     strided(plain.grad_t2i)};
  expect_close(tiled(other), tiled(plain), 0);
}

TEST(MaxSimilarity, NoTokensGiveZeros) {
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat}) {
    const SimilarityOutcome ours = tiled(random_sample(2, 3, 4, 0, 5).to(dtype));
    EXPECT_TRUE(at::equal(ours.i2t, at::zeros({2, 4}, dtype)));
    EXPECT_EQ(ours.grad_patches.abs().sum().item<double>(), 0);
  }
}

TEST(MaxSimilarity, ImageWithoutPatchesHasSimilarityZero) {
  SimilaritySample sample = random_sample(2, 3, 2, 4, 5);
  sample.patch_keep[1].fill_(false);
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {  // float uses the kernel, and double uses composed operations
    const SimilarityOutcome outcome = tiled(sample.to(dtype));
    EXPECT_TRUE(at::equal(outcome.i2t[1], at::zeros({2}, dtype))) << dtype;
    EXPECT_TRUE(at::equal(outcome.t2i[1], at::zeros({2}, dtype))) << dtype;
    EXPECT_TRUE(at::equal(outcome.grad_patches[1], at::zeros({3, 5}, dtype))) << dtype;
    SimilaritySample other = sample.to(dtype);
    const SimilarityOutcome alone = tiled({other.patches.detach().narrow(0, 0, 1).requires_grad_(true), other.tokens,
                                 other.patch_keep.narrow(0, 0, 1), other.token_keep, other.grad_i2t.narrow(0, 0, 1),
                                 other.grad_t2i.narrow(0, 0, 1)});
    EXPECT_TRUE(at::allclose(outcome.grad_tokens, alone.grad_tokens, 1e-5, 1e-6)) << dtype;
  }
}

TEST(MaxSimilarity, NeverHoldsTheProducts) {
  const SimilaritySample s = random_sample(16, 40, 16, 30, 8).to(at::kFloat);
  const LargestAllocation allocation;
  tiled(s);
  EXPECT_LT(allocation.bytes() * 20, 16 * 16 * 40 * 30 * 4);
}

TEST(MaxSimilarity, ErrorsNameWrongInputs) {
  const SimilaritySample s = random_sample(2, 3, 4, 5, 6);
  const auto error = [&](const at::Tensor& patches, const at::Tensor& tokens, const at::Tensor& patch_keep,
                         const at::Tensor& token_keep) {
    return error_of<c10::Error>([&] { max_similarity(patches, tokens, patch_keep, token_keep, std::nullopt); });
  };
  EXPECT_EQ(error(s.patches.narrow(1, 0, 0), s.tokens, s.patch_keep, s.token_keep),
            "max_similarity: patches must be [B, P, D] with P at least 1, got [2, 0, 6]");
  EXPECT_EQ(error(s.patches, s.tokens.narrow(2, 0, 5), s.patch_keep, s.token_keep),
            "max_similarity: tokens must be [C, L, D] = [C, L, 6], got [4, 5, 5]");
  EXPECT_EQ(
      error(s.patches, s.tokens.to(at::kFloat), s.patch_keep, s.token_keep),
      "max_similarity: patches and tokens must both be float32, both float64 or, on a GPU, both bfloat16, got Double "
      "and Float");
  EXPECT_EQ(error(s.patches.to(at::kBFloat16), s.tokens.to(at::kBFloat16), s.patch_keep, s.token_keep),
            "max_similarity: patches and tokens must both be float32, both float64 or, on a GPU, both bfloat16, got "
            "BFloat16 and BFloat16");
  EXPECT_EQ(error(at::zeros({1, 40000, 1}), at::zeros({1, 2, 1}), at::ones({1, 40000}, at::kBool),
                  at::ones({1, 2}, at::kBool)),
            "max_similarity: at most 32767 patches and tokens, got 40000 and 2");
  EXPECT_EQ(error(s.patches, s.tokens, s.patch_keep, s.patch_keep),
            "max_similarity: token_keep must be bool [4, 5], got Bool [2, 3]");
  EXPECT_EQ(
      error(s.patches, s.tokens.to(at::kMeta), s.patch_keep, s.token_keep),
      "max_similarity: patches, tokens, patch_keep and token_keep must be on one device, got cpu, meta, cpu and cpu");
}

TEST(MaxSimilarity, BFloat16OnAGpuGivesFloat32Results) {
  const at::Tensor patches = at::zeros({3, 9, 8}, at::TensorOptions(at::kMeta).dtype(at::kBFloat16)),
                   tokens = at::zeros({4, 6, 8}, patches.options());
  const auto [i2t, t2i] = max_similarity(patches, tokens, at::ones({3, 9}, patches.options().dtype(at::kBool)),
                                         at::ones({4, 6}, patches.options().dtype(at::kBool)), std::nullopt);
  EXPECT_EQ(i2t.scalar_type(), at::kFloat);
  EXPECT_EQ(t2i.sizes(), (std::vector<std::int64_t>{3, 4}));
}

TEST(MaxSimilarity, OnAGpuMatchesTheCpu) {
  if (!at::globalContext().hasCUDA()) GTEST_SKIP() << "no GPU";
  auto shapes = kSimilarityShapes;
  shapes.push_back({2, 5, 2, 1100, 4});  // more tokens than the kernels take
  for (const auto& shape : shapes) {
    const SimilaritySample sample = random_sample(shape[0], shape[1], shape[2], shape[3], shape[4]);
    expect_close(tiled(sample.to(at::kDouble, at::kCUDA)), tiled(sample.to(at::kDouble)), 1e-10);
    expect_close(tiled(sample.to(at::kFloat, at::kCUDA)), tiled(sample.to(at::kDouble)), 1e-4);
    SimilaritySample narrow = sample;
    narrow.patches = sample.patches.to(at::kBFloat16).to(at::kDouble);
    narrow.tokens = sample.tokens.to(at::kBFloat16).to(at::kDouble);
    expect_close(on_gpu_in_bfloat16(narrow), tiled(narrow.to(at::kDouble)), 1e-2);
  }
}

TEST(MaxSimilarity, OnAGpuIsDeterministic) {
  if (!at::globalContext().hasCUDA()) GTEST_SKIP() << "no GPU";
  const SimilaritySample sample = random_sample(40, 196, 40, 55, 64).to(at::kFloat, at::kCUDA);
  expect_close(tiled(sample), tiled(sample), 0);
}

}  // namespace
}  // namespace tessera
