#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "src/measure/pass_cost.h"
#include "src/measure/step_meter.h"
#include "src/optim/clip_grad_norm.h"
#include "src/training/memory/memory_plan.h"
#include "src/training/step/grad_cache.h"
#include "tests/support/error_of.h"
#include "tests/support/test_name.h"
#include "tests/training/systems.h"
#include "tests/training/tiny_run.h"
#include <tessera/base/text.h>

namespace tessera {
namespace {

TEST(CostCurve, FollowsEachAllocationToTheBatchSize) {
  // The trace first holds 100 bytes for a moment and later n^2 + 7 n bytes. For large n, the peak is the later one.
  CostCurve curve(2);
  for (const double n : {2.0, 3.0, 4.0})
    curve.add(static_cast<std::int64_t>(n), MemoryTrace({100, -100, n * n, 7 * n, -7 * n}), 5 * n * n);
  EXPECT_DOUBLE_EQ(curve.trace(3).peak(), 100);
  EXPECT_DOUBLE_EQ(curve.trace(5).peak(), 100);
  EXPECT_DOUBLE_EQ(curve.trace(1000).peak(), 1000 * 1000 + 7 * 1000);
  EXPECT_DOUBLE_EQ(curve.trace(1000).held(), 1000 * 1000);
  EXPECT_DOUBLE_EQ(curve.flops(1000), 5e6);
}

TEST(CostCurve, UsesThePeaksIfTheTracesDiffer) {
  CostCurve curve(1);
  curve.add(4, MemoryTrace({40}), 0);
  curve.add(8, MemoryTrace({40, 40}), 0);
  EXPECT_DOUBLE_EQ(curve.trace(16).peak(), 160);
  EXPECT_DOUBLE_EQ(curve.trace(8).peak(), 80);
}

// With a loss in chunks of 4, the similarities take n^2 bytes for batches of up to n = 4 and 4 n bytes for larger ones. A parabola
// through the three measured points would fall for large n.
TEST(CostCurve, ExtrapolatesAtLeastLinearly) {
  CostCurve curve(2);
  curve.add(2, MemoryTrace({4}), 0);
  curve.add(4, MemoryTrace({16}), 0);
  curve.add(8, MemoryTrace({16, 16}), 0);
  EXPECT_DOUBLE_EQ(curve.trace(64).peak(), 4 * 64);
}

// If a batch has more than one chunk of 4 samples, the forward pass keeps nothing, and the backward pass recomputes each chunk.
TEST(PassCost, PredictsBothPassesTogetherWhenMemoryMovesToTheBackwardPass) {
  PassCost cost(2);
  cost.forward.add(4, MemoryTrace({40}), 1);
  cost.backward.add(4, MemoryTrace({5, -45}), 1);
  for (const std::int64_t samples : {5, 9}) {
    cost.forward.add(samples, MemoryTrace({0}), 1);
    cost.backward.add(samples, MemoryTrace({40, 5, -45}), 1);
  }
  EXPECT_DOUBLE_EQ(cost.trace(4).peak(), 45);
  EXPECT_DOUBLE_EQ(cost.trace(64).peak(), 45);
  EXPECT_DOUBLE_EQ(cost.trace(64).held(), 0);
}

TEST(CostCurve, TracesTheAllocationsOfOperators) {
  const MemoryTrace trace = MemoryTrace::of([] { at::zeros({256}).neg(); });
  EXPECT_EQ(trace.peak(), 2 * 1024);
  EXPECT_EQ(trace.held(), 0);
}

struct PlanCase {
  const char* name;
  const char* objective;
  std::vector<std::string> overrides;
  double tolerance = 0.05;  // as a share of the measured peak
};
void PrintTo(const PlanCase& each, std::ostream* out) {
  *out << each.name;
}

class PlannedMemory : public ::testing::TestWithParam<PlanCase> {};

const std::vector<std::string> kWhole, kParts{"training.micro_batch=4"}, kAccumulated{"training.accumulation=2"},
    kAgain{"model.image.encoder.grad_checkpointing=true", "model.text.encoder.grad_checkpointing=true"},
    kAll{"training.micro_batch=5", "training.accumulation=2", "model.image.encoder.grad_checkpointing=true",
         "model.image.encoder.patch_dropout=0.5"};
const std::vector<std::string> kLoadBoxes{"data.train.negatives=true", "data.loader.boxes={count: 3, negatives: 3}"},
    kBoxesInParts{"data.train.negatives=true", "data.loader.boxes={count: 3, negatives: 3}", "training.micro_batch=8"};
const char* const kBoxes = "{name: weighted_sum, objectives: [{name: clip}, {name: region_contrast, hard_weight: 0.5}]}";
const char* const kFilip = "{name: filip, token_drop_rate: 0.2}";

INSTANTIATE_TEST_SUITE_P(
    Cases, PlannedMemory,
    ::testing::Values(
        PlanCase{"clip", "{name: clip}", kWhole}, PlanCase{"clip_parts", "{name: clip}", kParts},
        PlanCase{"clip_accumulated", "{name: clip}", kAccumulated}, PlanCase{"clip_again", "{name: clip}", kAgain},
        PlanCase{"clip_chunk", "{name: clip, chunk: 3}", kWhole},
        PlanCase{"clip_large_chunk", "{name: clip, chunk: 24}", kParts}, PlanCase{"siglip", "{name: siglip}", kAll},
        PlanCase{"sparc", "{name: sparc}", kWhole}, PlanCase{"sparc_parts", "{name: sparc}", kParts},
        PlanCase{"sparc_all", "{name: sparc}", kAll}, PlanCase{"sparc_chunk", "{name: sparc, chunk: 4}", kWhole},
        PlanCase{"sparc_large_chunk", "{name: sparc, chunk: 24}", kParts}, PlanCase{"filip", kFilip, kWhole},
        PlanCase{"filip_parts", kFilip, kParts}, PlanCase{"filip_chunk", "{name: filip, chunk: 3}", kAccumulated},
        PlanCase{"pacl", "{name: pacl}", kParts}, PlanCase{"gloria", "{name: gloria}", kAccumulated},
        PlanCase{"boxes", kBoxes, kLoadBoxes}, PlanCase{"boxes_parts", kBoxes, kBoxesInParts},
        PlanCase{"mgca", "{name: mgca, num_prototypes: 5}", kAll}, PlanCase{"teacher", "{name: test_teacher}", kWhole},
        PlanCase{"teacher_parts", "{name: test_teacher}", kParts},
        PlanCase{"lamb", "{name: clip}", {"optimizer={name: lamb}", "data.loader.batch_size=2"}, 0.01},
        PlanCase{"lion", "{name: clip}", {"optimizer={name: lion}", "data.loader.batch_size=2"}, 0.01},
        PlanCase{"muon", "{name: clip}", {"optimizer={name: muon}", "data.loader.batch_size=2"}, 0.01},
        PlanCase{"rounded_moments", "{name: clip}", {"training.moments=bfloat16", "data.loader.batch_size=2"}, 0.01}),
    test_name<PlanCase>);

// Returns the peak bytes of the tensors that one step allocates, without weights, optimizer state and averages. Only allocations of the
// step's own threads count. The loader's threads allocate the batches, so the step copies the batches to make them count.
double measured_step(const Config& config) {
  // LibTorch learns the sizes of blocks only while a meter exists, and forgets them only while a meter exists. Without this meter, the
  // second step could free a block of the first step at an address for which LibTorch still knows the size of an older block.
  const MemoryMeter sizes;
  TrainingRun run = build_training_run(config);
  std::vector<at::Tensor> parameters;
  for (const NamedParameter& each : run.optimizer->parameters()) parameters.push_back(each.tensor);
  GradientReducer reducer(parameters, {}, 25);
  std::vector<Batch> batches;
  for (std::int64_t i = 0; i < config.training.accumulation; ++i) batches.push_back(run.loader->next());
  const StepContext context = step_context(run, config, {}, 0);
  const auto step = [&] {
    run.optimizer->zero_grad();
    for (const Batch& batch : batches) {
      const Batch own = map_tensors(batch, [](const at::Tensor& tensor) { return tensor.clone(); });
      if (const auto samples = config.training.micro_batch.of(own.size())) {
        cached_backward(run, reducer, own, {*samples, "float32", {}, true, 7}, context);
      } else {
        reducer.backward(forward_loss(run, own, "float32", context).total, BackwardPass::last);
      }
    }
    std::vector<at::Tensor> gradients;
    for (const at::Tensor& each : parameters)
      if (each.grad().defined()) gradients.push_back(each.grad());
    clip_grad_norm(gradients, 1.0);
    run.optimizer->step(1e-3);
  };
  step();  // in this first step, operators also allocate memory that they keep
  run.optimizer->zero_grad();
  const MemoryMeter memory;
  step();
  return static_cast<double>(memory.peak());
}

TEST_P(PlannedMemory, MatchesTheStep) {
  const std::vector<std::string> all{std::string("objective=") + GetParam().objective, "data.loader.batch_size=24",
                                     "data.train.size=60", "model.image.encoder.patch_size=4"};
  const Config config = tiny_config("runs/none", with(all, GetParam().overrides));
  TrainingRun run = build_training_run(config);
  PlanSettings settings;
  settings.most_loss_samples = 16;  // smaller than the batch, so that the plan extrapolates the loss
  const MemoryPlan plan = plan_memory(run, config, settings);
  EXPECT_EQ(plan.loss_measured, plan.batch <= 16);
  const double measured = measured_step(config),
               planned = static_cast<double>(plan.peak - plan.weights - plan.optimizer - plan.average);
  RecordProperty("planned_of_measured", concat(planned / measured));
  EXPECT_NEAR(planned / measured, 1.0, GetParam().tolerance) << plan.peak_phase << "\n" << to_text(plan, config);
}

// If the measured batches fit into one chunk, the loss takes as much memory as without chunks. Such measurements cannot predict the memory
// of larger batches.
TEST(MemoryPlan, PredictsAChunkedLossFromMoreThanOneChunk) {
  const auto batch = [](int chunk) {
    return std::vector<std::string>{"data.loader.batch_size=96", "data.train.size=200", concat("objective.chunk=", chunk)};
  };
  // FILIP's chunk is so large that the memory that grows with the square of the batch size dominates the peak.
  for (const Config& config :
       {text_group_config("runs/none", batch(8)), tiny_config("runs/none", batch(32), "filip")}) {
    const auto plan = [&](std::int64_t most) {
      TrainingRun run = build_training_run(config);
      PlanSettings settings;
      settings.most_loss_samples = most;
      return plan_memory(run, config, settings);
    };
    const MemoryPlan foretold = plan(4), measured = plan(200);
    EXPECT_FALSE(foretold.loss_measured);
    ASSERT_TRUE(measured.loss_measured);
    EXPECT_NEAR(static_cast<double>(foretold.loss) / static_cast<double>(measured.loss), 1, 0.1)
        << config.objective.name << ": " << foretold.loss << " and " << measured.loss;
  }
}

TEST(MemoryPlan, RunsRefuseABatchWhoseImagesDoNotFit) {
  const Config config = tiny_config("runs/none", {"data.loader.batch_size=1000000", "model.preprocessing.image_size=4096",
                                                  "model.image.encoder.patch_size=256"});
  const std::string refusal = error_of([&] { build_training_run(config); });
  EXPECT_TRUE(refusal.starts_with("data.loader.batch_size is 1000000: the images of one batch need 45.8 TiB of memory")) << refusal;
}

TEST(MemoryPlan, LeavesTheRunUnchanged) {
  const Config config =
      tiny_config("runs/none", {"objective={name: mgca, num_prototypes: 5}", "training.micro_batch=2"});
  TrainingRun run = build_training_run(config), untouched = build_training_run(config);
  plan_memory(run, config);
  expect_equal(collect_weights(*run.model, *run.objective), collect_weights(*untouched.model, *untouched.objective));
  for (const NamedParameter& each : run.optimizer->parameters()) EXPECT_FALSE(each.tensor.grad().defined());
  EXPECT_EQ(run.loader->position().cursor, 0);
}

TEST(MemoryPlan, ReadyBatchesStayWithinTheirBytes) {
  const auto ready = [](int prefetch, int mebibytes) {
    const Config config =
        tiny_config("runs/none", {concat("data.loader.prefetch=", prefetch), "data.loader.batch_size=24",
                                  concat("data.loader.prefetch_mb=", mebibytes)});
    TrainingRun run = build_training_run(config);
    return plan_memory(run, config).ready;
  };
  const std::int64_t batch = ready(1, 1000) / 2;
  EXPECT_EQ(ready(4, 1000), 5 * batch);
  ASSERT_GT(200 * batch, 1 << 20);
  EXPECT_EQ(ready(200, 1), (1 << 20) + batch);
}

TEST(MemoryPlan, CountsCheckpointAndReadyBatchesInHostOrDeviceMemory) {
  MemoryPlan plan;
  plan.peak = 500;
  plan.checkpoint = 300;
  plan.ready = 100;
  plan.available = plan.host_available = 1000;
  EXPECT_EQ(plan.total(), 900);
  EXPECT_TRUE(plan.fits());
  plan.ready = 101;
  EXPECT_FALSE(plan.fits()) << "a tenth of the memory must stay free";
  plan.gpu = true;
  EXPECT_EQ(plan.total(), 500);
  EXPECT_TRUE(plan.fits());
  plan.host_available = 400;
  EXPECT_FALSE(plan.fits());
}

}  // namespace
}  // namespace tessera
