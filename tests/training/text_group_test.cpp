// Tests runs of `text_group`.
#include <cmath>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "src/training/trainer.h"
#include "tests/training/systems.h"
#include "tests/training/tiny_run.h"

namespace tessera {
namespace {

class TextGroupTraining : public RunTest {
 protected:
  static Weights trained(const Config& config, const std::string& resume = "none") {
    Trainer trainer(config, resume);
    trainer.run();
    return end_of(trainer);
  }
};

TEST_F(TextGroupTraining, FrozenImageEncoderStaysAndItsHeadLearns) {
  const Config config = text_group_config(
      folder_ / "run", {"parameters.frozen=[visual.patch_embed.*, visual.pos_embed, visual.layers.*, visual.norm.*]"});
  const TrainingRun fresh = build_training_run(config);
  const Weights start = collect_weights(*fresh.model, *fresh.objective), end = trained(config);
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
