// Takes one objective that asks for every kind of view through training, GradCache, resuming, the dry run and the benchmark.
// Only run_ranks may compute in this process; see its comment.
#include "tests/training/any_views.h"

#include <csignal>
#include <filesystem>
#include <sys/wait.h>
#include <unistd.h>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "tests/distributed/ranks.h"
#include "tests/training/tiny_run.h"
#include <tessera/bench/loss_bench.h>
#include <tessera/models/per_sample_rng.h>
#include <tessera/training/memory/dry_run.h>
#include <tessera/training/step/grad_cache.h>
#include <tessera/training/trainer.h>

namespace tessera {
namespace {

Tensors end_of_run(const Trainer& trainer) {
  const TrainingRun& run = trainer.training_run();
  Tensors out = weights_of(*run.model, *run.objective);
  for (const auto& [name, tensor] : run.teacher->ema.averages()) out["teacher." + name] = tensor;
  return out;
}

class EveryKindOfView : public ::testing::Test {
 protected:
  // Of the 48 samples, 24 lack a summary and 16 lack regions.
  EveryKindOfView() : shards_(write_shards_with_holes(folder_ / "shards", 48)) {}

  Config config(const std::string& run, const std::vector<std::string>& overrides = {}) const {
    return any_views_config(folder_ / run, shards_, overrides);
  }
  Tensors train(const std::string& run, int ranks, const std::vector<std::string>& overrides = {}) const {
    std::vector<std::string> all{"data.loader.batch_size=" + std::to_string(8 / ranks)};
    all.insert(all.end(), overrides.begin(), overrides.end());
    const auto ends = run_ranks(ranks, [&](const ProcessGroup& group) {
      Trainer trainer(config(run, all), "auto", group);
      trainer.run();
      return end_of_run(trainer);
    });
    return ends.empty() ? Tensors() : ends[0];
  }

  TemporaryFolder folder_;
  std::string shards_;
};

void expect_same_tensors(const Tensors& a, const Tensors& b) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [name, tensor] : a) EXPECT_TRUE(at::equal(tensor, b.at(name))) << name;
}

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
  ASSERT_EQ(seen.size(), 1U);
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

TEST_F(EveryKindOfView, TrainsTheSameOnOneAndTwoRanks) {
  const Tensors one = train("one", 1), two = train("two", 2);
  ASSERT_FALSE(two.empty());
  expect_same_curve(folder_ / "one", folder_ / "two", 2e-4);
  for (const auto& [name, tensor] : one) EXPECT_TRUE(at::allclose(tensor, two.at(name), 1e-3, 1e-4)) << name;
}

TEST_F(EveryKindOfView, GradCacheMatchesTheGradientsOfOnePass) {
  const auto gradients = [&](std::int64_t chunk) {
    return run_ranks(1, [&](const ProcessGroup&) {
      const Config settings = config("run");
      TrainingRun run = build_training_run(settings);
      GradientReducer reducer = make_reducer(run, settings, {});
      const Batch batch = run.loader->next();
      StepContext context = step_context(run, settings, {}, 3);
      const at::Tensor rows = row_keys(5, 0, 1, batch.size());
      cached_backward(run, reducer, batch, {chunk, "float32", {}, true, 7, rows}, context);
      Tensors out;
      for (const NamedParameter& each : run.optimizer->parameters())
        if (each.tensor.grad().defined()) out[each.name] = each.tensor.grad();
      return out;
    });
  };
  const auto whole = gradients(8), chunks = gradients(3);
  ASSERT_FALSE(whole.empty());
  ASSERT_EQ(whole[0].size(), chunks[0].size());
  for (const auto& [name, gradient] : whole[0]) {
    const double distance = (gradient - chunks[0].at(name)).norm().item<double>();
    EXPECT_LE(distance, 1e-5 * gradient.norm().item<double>() + 1e-7) << name;
  }
}

TEST_F(EveryKindOfView, ResumesBitForBitAfterBeingKilled) {
  const std::vector<std::string> save = {"checkpoint.every_steps=2", "checkpoint.background=false"};
  const Tensors unbroken = train("unbroken", 1, save);
  const pid_t child = ::fork();
  if (child == 0) {
    at::set_num_threads(1);  // as in run_ranks
    kill_any_views_at(5);
    Trainer(config("broken", save), "none").run();
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
  ASSERT_TRUE(std::filesystem::exists(folder_ / "broken/checkpoints/step_0000004/teacher.safetensors"));
  expect_same_tensors(train("broken", 1, save), unbroken);
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
  ASSERT_EQ(costs.size(), 1U);
  for (const auto& [name, value] : costs[0]) EXPECT_GT(value.item<double>(), 0) << name;
}

}  // namespace
}  // namespace tessera
