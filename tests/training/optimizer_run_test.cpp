// Tests whole runs with each optimizer: what works with AdamW must work with all of them.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "src/training/memory/dry_run.h"
#include "src/training/trainer.h"
#include "tests/support/test_name.h"
#include "tests/training/tiny_run.h"

namespace tessera {
namespace {

struct OptimizerCase {
  const char* name;
  std::vector<std::string> overrides;
};
void PrintTo(const OptimizerCase& each, std::ostream* out) {
  *out << each.name;
}

class OptimizerRun : public RunTest, public ::testing::WithParamInterface<OptimizerCase> {
 protected:
  static std::vector<std::string> all(const std::vector<std::string>& more) { return with(GetParam().overrides, more); }
};

INSTANTIATE_TEST_SUITE_P(Kinds, OptimizerRun,
                         ::testing::Values(OptimizerCase{"lion", {"optimizer={name: lion, lr: 1.0e-3}"}},
                                           OptimizerCase{"muon", {"optimizer={name: muon, lr: 1.0e-2, adamw_lr: 5.0e-3}"}},
                                           OptimizerCase{"rounded_adamw", {"training.moments=bfloat16"}},
                                           OptimizerCase{"rounded_muon", {"optimizer={name: muon, lr: 1.0e-2}", "training.moments=bfloat16"}}),
                         test_name<OptimizerCase>);

TEST_P(OptimizerRun, ResumesBitForBitWithRulesAveragesAndAccumulation) {
  const std::vector<std::string> overrides =
      all({"parameters={frozen: [visual.conv1*], groups: [{match: [text], lr_scale: 0.5}, {match: [visual.proj], frozen_steps: 4}], "
           "layer_decay: {image: 0.8}}",
           "training.ema={decay: 0.9}", "training.accumulation=2", "schedule.weight_decay_end=0.5", "training.clip_mode=per_tensor"});
  const std::string whole = train("whole", overrides), part = train("part", overrides, whole + "/checkpoints/step_0000003");
  const Checkpoint a = checkpoint_of(whole), b = checkpoint_of(part);
  expect_equal(a.model.weights, b.model.weights);
  expect_equal(a.optimizer, b.optimizer);
  expect_equal(a.ema, b.ema);
  EXPECT_FALSE(a.optimizer.contains("exp_avg.visual.conv1.weight"));
  EXPECT_FALSE(at::equal(a.model.weights.at("visual.proj"), checkpoint_of(whole, 3).model.weights.at("visual.proj")));
}

// In bfloat16, Muon's iteration would turn differences in the order of summation into differences of 1/256.
TEST_P(OptimizerRun, MicroBatchesDoNotChangeTheCurve) {
  const bool muon = std::string(GetParam().name).ends_with("muon");
  const std::vector<std::string> overrides = muon ? all({"optimizer.ns_type=float32"}) : all({});
  const std::string whole = train("whole", overrides), parts = train("parts", with(overrides, {"training.micro_batch=3"}));
  expect_same_curve(parts, whole, 2e-4);
}

TEST_P(OptimizerRun, TrainsAdapters) {
  const std::vector<std::string> overrides = all({"adapt.image={lora: {rank: 4}}", "parameters.frozen=[text]"});
  const Weights before = fresh("fresh", overrides);
  const std::string whole = train("whole", overrides), part = train("part", overrides, whole + "/checkpoints/step_0000003");
  const Checkpoint a = checkpoint_of(whole), b = checkpoint_of(part);
  expect_equal(a.model.weights, b.model.weights);
  expect_equal(a.optimizer, b.optimizer);
  const std::string adapter = "visual.transformer.resblocks.0.attn.lora_query_b", base = "visual.transformer.resblocks.0.attn.in_proj_weight";
  EXPECT_FALSE(at::equal(a.model.weights.at(adapter), before.at(adapter)));
  EXPECT_TRUE(at::equal(a.model.weights.at(base), before.at(base)));
}

TEST_P(OptimizerRun, SkipsAStepThatIsNotFinite) {
  const std::vector<std::string> overrides = all({"objective={from: 3, until: 4}", "training.non_finite=skip"});
  const Checkpoint end = checkpoint_of(train("run", overrides, "none", "test_not_finite"));
  for (const auto& [name, tensor] : end.model.weights)
    if (tensor.is_floating_point()) {
      EXPECT_TRUE(tensor.isfinite().all().item<bool>()) << name;
    }
  EXPECT_EQ(end.optimizer.at("step").item<std::int64_t>(), 5);
}

TEST(OptimizerState, DryRunCountsWhatEachOptimizerKeeps) {
  const auto bytes = [](const std::vector<std::string>& overrides) {
    return dry_run(tiny_config("runs/none", overrides)).memory.optimizer - 8;  // without the number of steps
  };
  const std::int64_t adamw = bytes({});
  EXPECT_EQ(bytes({"training.moments=bfloat16"}), adamw / 2);
  EXPECT_EQ(bytes({"optimizer=lion"}), adamw / 2);
  // Of two towers with a block of width 16 each, the matrices have 12 * 16 * 16 elements, and no second moment.
  EXPECT_EQ(bytes({"optimizer=muon"}), adamw - 2 * 12 * 16 * 16 * 4);
}

}  // namespace
}  // namespace tessera
