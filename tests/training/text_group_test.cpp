// Tests runs of `text_group`.
#include <cmath>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/training/systems.h"
#include "tests/training/tiny_run.h"
#include "tests/training/whole_or_cached.h"
#include <tessera/training/trainer.h>

namespace tessera {
namespace {

class TextGroupTraining : public ::testing::Test {
 protected:
  StepOutcome step(std::int64_t chunk, std::uint64_t seed, const std::vector<std::string>& overrides = {}) const {
    const Config config = text_group_config(folder_ / "run", overrides);
    TrainingRun run = build_training_run(config);
    // Scales up the weights, because with tiny inputs a LayerNorm's gradients would be rounding noise.
    {
      const at::NoGradGuard no_grad;
      for (const auto& [name, tensor] : run.model->state_dict())
        if (name.starts_with("visual.") && name.ends_with(".weight") && tensor.dim() == 2) at::Tensor(tensor).mul_(10);
    }
    const Batch batch = run.loader->next();
    StepOutcome out = whole_or_cached(run, batch, chunk, row_keys(seed, 16, 2, batch.size()), step_context(run, config, {}, 0));
    // These biases shift all channels of a group equally. The next LayerNorm removes such shifts, so the gradients are rounding noise.
    std::erase_if(out.gradients, [](const auto& item) {
      return item.first.ends_with("mlp_inter.fc2.bias") || item.first.ends_with("group_projector.1.fc2.bias");
    });
    return out;
  }
  static Weights trained(const Config& config, const std::string& resume = "none") {
    Trainer trainer(config, resume);
    trainer.run();
    return end_of(trainer);
  }

  TemporaryFolder folder_;
};

TEST_F(TextGroupTraining, GradCacheMatchesTheWholeBatchWithNoise) {
  for (const char* chunk_of_loss : {"null", "3"}) {
    const std::vector<std::string> settings = {std::string("objective.chunk=") + chunk_of_loss};
    const StepOutcome whole = step(0, 3, settings);
    for (const std::int64_t chunk : {1, 3}) expect_same_step(step(chunk, 3, settings), whole, concat("chunks of ", chunk), 1e-6);
  }
  EXPECT_GT(std::abs(step(0, 4).loss - step(0, 3).loss), 1e-4) << "there is noise";
}

TEST_F(TextGroupTraining, ResumesBitForBit) {
  const Weights unbroken = trained(text_group_config(folder_ / "whole"));
  expect_equal(trained(text_group_config(folder_ / "again"), folder_ / "whole/checkpoints/step_0000003"), unbroken);
}

TEST_F(TextGroupTraining, FrozenImageEncoderStaysAndItsHeadLearns) {
  const Config config = text_group_config(
      folder_ / "run", {"parameters.frozen=[visual.patch_embed.*, visual.pos_embed, visual.layers.*, visual.norm.*]"});
  const TrainingRun fresh = build_training_run(config);
  const Weights start = weights_of(*fresh.model, *fresh.objective), end = trained(config);
  std::int64_t frozen = 0;
  for (const auto& [name, tensor] : end) {
    if (!name.starts_with("visual.")) continue;
    const bool head = name.starts_with("visual.readout.");
    frozen += head ? 0 : 1;
    EXPECT_EQ(at::equal(tensor, start.at(name)), !head) << name;
  }
  EXPECT_GT(frozen, 20);
}

TEST_F(TextGroupTraining, EachLossFallsWithoutTheOther) {
  for (const char* off : {"contrastive_weight", "reconstruction_weight"}) {
    const std::string run = folder_ / off;
    trained(text_group_config(run, {concat("objective.", off, "=0"), "training.steps=20"}));
    const auto curve = rows(run);
    ASSERT_EQ(curve.size(), 20u);
    EXPECT_EQ(curve[0]["terms"].size(), 1u);
    EXPECT_LT(curve.back()["loss"].get<double>(), curve.front()["loss"].get<double>()) << off;
  }
}

}  // namespace
}  // namespace tessera
