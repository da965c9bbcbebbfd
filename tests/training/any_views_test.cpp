// Tests the data, the dry run and the benchmark with one objective that needs every kind of view. Outside run_ranks, this process must not
// compute anything; ranks.h says why.
#include "tests/training/any_views.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "src/training/memory/dry_run.h"
#include "tests/distributed/ranks.h"
#include "tests/training/tiny_run.h"
#include "tools/bench/loss_bench.h"

namespace tessera {
namespace {

class EveryKindOfView : public ::testing::Test {
 protected:
  // Of the 48 samples, 24 lack a summary and 16 lack regions.
  EveryKindOfView() : shards_(write_shards_with_holes(folder_ / "shards", 48)) {}

  Config config(const std::string& run, const std::vector<std::string>& overrides = {}) const {
    return any_views_config(folder_ / run, shards_, overrides);
  }

  TemporaryFolder folder_;
  std::string shards_;
};

TEST_F(EveryKindOfView, ReachesTheObjectiveAndMarksSamplesThatLackIt) {
  const auto seen = run_ranks(1, [&](const ProcessGroup&) {
    TrainingRun run = build_training_run(config("run", {"data.loader.shuffle=false", "data.loader.batch_size=12"}));
    const Features features = encode_batch(run, run.loader->next(), "float32");
    return Tensors{{"image", features.image().global},
                   {"tokens", features.image().tokens},
                   {"local", features.image("local").global},
                   {"roi", features.image("roi").global},
                   {"roi_present", features.image("roi").present},
                   {"summary_present", features.text("summary").present},
                   {"teacher", features.teacher_image().global},
                   {"ids", features.text().input.ids}};
  });
  const Tensors& batch = seen[0];
  for (const char* view : {"image", "local", "roi", "teacher"}) {
    EXPECT_EQ(batch.at(view).sizes(), (std::vector<std::int64_t>{12, 8})) << view;
    EXPECT_TRUE(batch.at(view).isfinite().all().item<bool>()) << view;
  }
  for (std::int64_t i = 0; i < 12; ++i) {
    EXPECT_EQ(batch.at("summary_present")[i].item<bool>(), i % 2 != 0) << i;
    EXPECT_EQ(batch.at("roi_present")[i].item<bool>(), i % 3 != 0) << i;
  }
}

TEST_F(EveryKindOfView, IsMeasuredByTheDryRunAndTheLossBenchmark) {
  const auto costs = run_ranks(1, [&](const ProcessGroup&) {
    const Config settings = config("run");
    const DryRunReport plan = dry_run(settings);
    bench::LossBenchSettings bench;
    bench.objectives = {bench::parse_objective("test_any_views")};
    bench.batch_sizes = {4};
    bench.width = 8;
    bench.patches = bench.tokens = 4;
    bench.model = settings.model;
    const bench::LossBench measured = bench::measure_losses(bench);
    return Tensors{{"measured", at::scalar_tensor(measured.costs.at(0).outcome == bench::Outcome::measured)},
                   {"step_flops", at::scalar_tensor(measured.models.at(0).towers.flops(1), at::kDouble)},
                   {"planned", at::scalar_tensor(plan.memory.peak, at::kDouble)},
                   {"planned_flops", at::scalar_tensor(plan.memory.total_flops, at::kDouble)}};
  });
  for (const auto& [name, value] : costs[0]) EXPECT_GT(value.item<double>(), 0) << name;
}

}  // namespace
}  // namespace tessera
