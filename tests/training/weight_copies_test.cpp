#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "kernels/adamw/adamw.h"
#include "src/models/autocast.h"
#include "src/models/transformer_block.h"
#include "src/ops/weight_copies.h"
#include "src/optim/adamw.h"
#include "tests/models/small_models.h"
#include <tessera/batch.h>
#include <tessera/optim/ema.h>

namespace tessera {
namespace {

// A model whose blocks run as one function in bfloat16, as on a GPU, and which the emulated kernel updates.
struct BlocksRun {
  explicit BlocksRun(bool copies) : with_copies(copies) {
    at::manual_seed(3);
    model = std::make_unique<DualEncoder>(small_clip());
    std::vector<NamedParameter> named;
    for (const auto& item : model->named_parameters()) named.push_back({item.key(), item.value()});
    optimizer = std::make_unique<AdamW>(named, AdamWSettings{.lr = 1e-2});
    optimizer->use_kernel(kernels::emulation::adamw_update);
  }

  WeightCopies* copies() const { return with_copies ? optimizer->weight_copies() : nullptr; }

  double step(std::int64_t number) const {
    at::manual_seed(static_cast<std::uint64_t>(number));
    const BlockPath blocks(BlockPath::Kind::one_function);
    Batch batch;
    batch.images["image"] = image_input(at::randint(256, {4, 3, 16, 16}, at::kByte));
    batch.texts["caption"] = text_input(at::randint(1, 20, {4, 8}, at::kLong), at::ones({4, 8}, at::kBool));
    for (const NamedParameter& each : optimizer->parameters()) each.tensor.mutable_grad().reset();
    if (copies() != nullptr) copies()->refresh();
    const WeightCopies::Scope scope(copies());
    at::Tensor loss;
    {
      const Autocast autocast(at::kCPU);
      const auto images = model->encode_image(batch.images.at("image")), texts = model->encode_text(batch.texts.at("caption"));
      loss = (images.global.to(at::kFloat) * texts.global.to(at::kFloat)).sum();
    }
    loss.backward();
    optimizer->step(1e-2);
    return loss.item<double>();
  }

  bool with_copies;
  std::unique_ptr<DualEncoder> model;
  std::unique_ptr<AdamW> optimizer;
};

void expect_same_weights(const BlocksRun& a, const BlocksRun& b) {
  for (std::size_t i = 0; i < a.optimizer->parameters().size(); ++i)
    EXPECT_TRUE(at::equal(a.optimizer->parameters()[i].tensor, b.optimizer->parameters()[i].tensor)) << a.optimizer->parameters()[i].name;
}

TEST(WeightCopies, EqualAutocastsCasts) {
  const BlocksRun with(true), without(false);
  for (std::int64_t i = 0; i < 4; ++i) EXPECT_EQ(with.step(i), without.step(i)) << i;
  expect_same_weights(with, without);
  std::int64_t written = 0;
  for (const NamedParameter& each : with.optimizer->parameters()) {
    const at::Tensor copy = with.copies()->written_by_updates(each.tensor);
    if (!copy.defined()) continue;
    ++written;
    EXPECT_TRUE(at::equal(copy, each.tensor.detach().to(at::kBFloat16))) << each.name;
  }
  EXPECT_EQ(written, 16) << "four maps of each of the four blocks";
}

// Whatever else changes a weight, the next step uses the new value.
TEST(WeightCopies, FollowOtherChangesOfTheWeights) {
  const BlocksRun with(true), without(false);
  std::vector<std::unique_ptr<Ema>> averages;
  for (const BlocksRun* each : {&with, &without}) {
    std::map<std::string, at::Tensor> weights;
    for (const NamedParameter& parameter : each->optimizer->parameters()) weights[parameter.name] = parameter.tensor;
    averages.push_back(std::make_unique<Ema>(weights, EmaSettings{.decay = 0.5}));
  }
  for (std::int64_t i = 0; i < 6; ++i) {
    EXPECT_EQ(with.step(i), without.step(i)) << i;
    for (const auto& each : averages) {
      each->update(i + 1);
      if (i == 2) each->swap();
    }
    if (i != 3) continue;
    const at::NoGradGuard no_grad;
    for (const BlocksRun* each : {&with, &without})
      for (const NamedParameter& parameter : each->optimizer->parameters()) parameter.tensor.copy_(parameter.tensor * 1.5);
  }
  expect_same_weights(with, without);
}

TEST(WeightCopies, AreNotUsedOutsideAScopeOrWithoutGradients) {
  const BlocksRun trained(true);
  trained.step(0);
  const at::Tensor weight = trained.optimizer->parameters()[0].tensor;
  EXPECT_FALSE(WeightCopies::cast(weight).defined());
  const WeightCopies::Scope scope(trained.copies());
  EXPECT_TRUE(WeightCopies::cast(weight).defined());
  EXPECT_FALSE(WeightCopies::cast(weight.detach()).defined());
  const at::NoGradGuard no_grad;
  EXPECT_FALSE(WeightCopies::cast(weight).defined());
}

TEST(WeightCopies, ThatAppearAfterTheFirstUpdateAreCast) {
  const at::Tensor early = at::ones({2, 2}).requires_grad_(), late = at::ones({2, 2}).requires_grad_();
  WeightCopies copies;
  const WeightCopies::Scope scope(&copies);
  EXPECT_TRUE(WeightCopies::cast(early).defined());
  EXPECT_TRUE(copies.written_by_updates(early).defined());
  EXPECT_TRUE(WeightCopies::cast(late).defined());
  EXPECT_FALSE(copies.written_by_updates(late).defined());
  const at::NoGradGuard no_grad;
  late.fill_(3);
  copies.mark_written(late);
  const at::AutoGradMode grad(true);
  WeightCopies::forget_casts();
  EXPECT_EQ(WeightCopies::cast(late)[0][0].item<float>(), 3);
}

}  // namespace
}  // namespace tessera
