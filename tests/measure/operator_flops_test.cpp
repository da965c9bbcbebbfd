#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "src/measure/step_meter.h"
#include <tessera/ops/max_similarity.h>
#include <tessera/ops/sparsify_group.h>

namespace tessera {
namespace {

constexpr std::int64_t kBatch = 2, kTokens = 5, kPatches = 9, kWidth = 16;
constexpr std::int64_t kGroupProduct = 2 * kBatch * kTokens * kPatches * kWidth;

std::optional<std::int64_t> flops_of(const char* name, const std::vector<c10::IValue>& inputs) {
  return operator_flops(name, c10::ArrayRef<const c10::IValue>(inputs.data(), inputs.size()));
}

c10::IValue wanted(bool text, bool image) {
  return c10::IValue(c10::List<bool>({text, image}));
}

TEST(OperatorFlops, SparsifyGroupIsTwoProductsForwardAndUpToFiveBackward) {
  const at::Tensor text = at::zeros({kBatch, kTokens, kWidth}), image = at::zeros({kBatch, kPatches, kWidth});
  EXPECT_EQ(flops_of("tessera::_sparsify_group", {text, image}), 2 * kGroupProduct);
  const char* const backward = "tessera::_sparsify_group_backward";
  EXPECT_EQ(flops_of(backward, {text, text, image, wanted(true, true)}), 5 * kGroupProduct);
  EXPECT_EQ(flops_of(backward, {text, text, image, wanted(true, false)}), 3 * kGroupProduct);
  EXPECT_EQ(flops_of(backward, {text, text, image, wanted(false, true)}), 4 * kGroupProduct);
}

TEST(OperatorFlops, MaxSimilarityCountsOnlyKeptPatchesAndTokens) {
  const at::Tensor patches = at::zeros({3, 4, 8}), tokens = at::zeros({2, 5, 8});
  at::Tensor patch_keep = at::ones({3, 4}, at::kBool), token_keep = at::ones({2, 5}, at::kBool);
  patch_keep[0][0] = false;
  token_keep[1] = false;
  EXPECT_EQ(flops_of("tessera::_max_similarity", {patches, tokens, patch_keep, token_keep}), 2 * 11 * 5 * 8);
  EXPECT_EQ(flops_of("tessera::_max_similarity_backward", {patches, tokens, patches, tokens}), 0);
  const at::Tensor narrow = patches.to(at::kBFloat16), wide = patches.to(at::kDouble);
  EXPECT_EQ(flops_of("tessera::_max_similarity", {narrow, tokens, patch_keep, token_keep}), 2 * 11 * 5 * 8);
  EXPECT_EQ(flops_of("tessera::_max_similarity", {wide, tokens, patch_keep, token_keep}), std::nullopt)
      << "composed of products that are counted separately";
}

TEST(OperatorFlops, TokenMaxProjectionCountsUnmaskedPositionsForwardAndNothingBackward) {
  const at::Tensor tokens = at::zeros({3, 4, 8}), table = at::zeros({11, 8});
  at::Tensor mask = at::ones({3, 4}, at::kBool);
  mask[1][2] = false;
  EXPECT_EQ(flops_of("tessera::_token_max_projection", {tokens, mask, table}), 2 * 11 * 11 * 8);
  EXPECT_EQ(flops_of("tessera::_token_max_projection", {tokens, c10::IValue(), table}), 2 * 12 * 11 * 8);
  EXPECT_EQ(flops_of("tessera::_token_max_projection_backward", {tokens, tokens, tokens}), 0);
  EXPECT_EQ(flops_of("tessera::_token_max_projection", {tokens.to(at::kDouble), mask, table}), std::nullopt)
      << "composed of products that are counted separately";
}

TEST(OperatorFlops, LinearProductIsAProductOfItsMatrices) {
  EXPECT_EQ(flops_of("tessera::_linear_product", {at::zeros({3, 4}), at::zeros({4, 5})}), 2 * 3 * 4 * 5);
}

TEST(OperatorFlops, TokenContrastIsOneProductForwardAndThreeBackward) {
  const at::Tensor rows = at::zeros({3, 4, 8});
  EXPECT_EQ(flops_of("tessera::_token_contrast", {rows, rows}), 2 * 3 * 4 * 4 * 8);
  EXPECT_EQ(flops_of("tessera::_token_contrast_backward", {rows, rows, rows}), 3 * 2 * 3 * 4 * 4 * 8);
}

TEST(OperatorFlops, OtherOperatorsAreUnknown) {
  EXPECT_EQ(flops_of("aten::mm", {}), std::nullopt);
  EXPECT_EQ(flops_of("tessera::flops_regularizer", {}), std::nullopt);
}

// The dispatcher calls each operator twice, above and below autograd. Only one of the calls may count.
TEST(FlopCounter, CountsOurOperatorsOnce) {
  const at::Tensor text = at::randn({kBatch, kTokens, kWidth}).set_requires_grad(true);
  const at::Tensor image = at::randn({kBatch, kPatches, kWidth}).set_requires_grad(true);
  const at::Tensor mask = at::ones({kBatch, kTokens}, at::kBool);
  const FlopCounter group;
  const at::Tensor grouped = sparsify_group(text, image, mask, SparsifySettings{});
  EXPECT_EQ(group.flops(), 2 * kGroupProduct);
  grouped.sum().backward();
  EXPECT_EQ(group.flops(), (2 + 5) * kGroupProduct);

  const FlopCounter similarity;
  max_similarity(image.detach(), text.detach(), at::ones({kBatch, kPatches}, at::kBool), mask, std::nullopt);
  EXPECT_EQ(similarity.flops(), 2 * kBatch * kBatch * kPatches * kTokens * kWidth);
}

}  // namespace
}  // namespace tessera
