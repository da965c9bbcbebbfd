// Tests training on several data sets.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "src/training/memory/dry_run.h"
#include "src/training/trainer.h"
#include "tests/support/test_name.h"
#include "tests/training/tiny_run.h"
#include <tessera/base/text.h>
#include <tessera/io/atomic_file.h>

namespace tessera {
namespace {

std::string mixture_of(const std::string& mode) {
  const std::string weights = mode == "weighted" ? "weight: 0.5, " : "";
  return "data.train={name: mixture, mode: " + mode +
         ", sources: [{label: many, source: {name: shapes, size: 24, image_size: 16}}, {label: few, " + weights +
         "source: {name: shapes, size: 16, image_size: 16, seed: 5}}]}";
}

class MixtureRun : public RunTest, public ::testing::WithParamInterface<const char*> {};
INSTANTIATE_TEST_SUITE_P(Modes, MixtureRun, ::testing::Values("accumulate", "sequential", "concat", "weighted"),
                         test_name<const char*>);

// Six steps are two epochs in the mode `accumulate`, and a little more than one epoch in the other modes.
TEST_P(MixtureRun, ResumesBitForBit) {
  const std::vector<std::string> overrides = {mixture_of(GetParam()), "checkpoint.every_steps=2",
                                              "checkpoint.keep_last=9"};
  const std::string whole = train("whole", overrides), from = whole + "/checkpoints/step_0000002";
  EXPECT_GT(load_checkpoint(from).state.data.cursor, 0);
  const Checkpoint a = checkpoint_of(whole), b = checkpoint_of(train("broken", overrides, from));
  expect_equal(a.model.weights, b.model.weights);
  expect_equal(a.optimizer, b.optimizer);
  EXPECT_EQ(a.state.samples, std::string(GetParam()) == "accumulate" ? 96 : 48);
  EXPECT_TRUE(
      contains(io::read_file(whole + "/log.txt"), "mixture (" + std::string(GetParam()) + ") of {many: shapes"));
}

using MixtureTraining = MixtureRun;

TEST_F(MixtureTraining, AccumulateAddsTheGradientsOfOneBatchPerSource) {
  const std::vector<std::string> overrides = {mixture_of("accumulate"),  "training.steps=1",
                                              "training.clip_norm=null", "optimizer={name: sgd, lr: 0.1}",
                                              "schedule.warmup_steps=0", "schedule.schedule=constant"};
  const std::string folder = folder_ / "run";
  Trainer trainer(tiny_config(folder, overrides), "none");
  trainer.run();

  // Computes the same update by hand: p - lr * (g1 + g2), where g1 and g2 are the gradients of two batches, each with its own loss.
  const Config config = tiny_config(folder_ / "hand", overrides);
  TrainingRun run = build_training_run(config);
  std::vector<double> losses;
  std::vector<std::string> labels;
  const std::vector<NamedParameter>& parameters = run.optimizer->parameters();
  std::vector<at::Tensor> sums(parameters.size());
  for (std::int64_t i = 0; i < 2; ++i) {
    const Batch batch = run.loader->next();
    labels.push_back(run.loader->source_label());
    for (const std::string& key : batch.keys) EXPECT_EQ(key.find(labels.back() + ":"), 0U) << key;
    StepContext context;
    const Losses one = forward_loss(run, batch, "float32", context);
    losses.push_back(one.total.item<double>());
    run.optimizer->zero_grad();
    one.total.backward();
    for (std::size_t k = 0; k < parameters.size(); ++k) {
      const at::Tensor& gradient = parameters[k].tensor.grad();
      if (gradient.defined()) sums[k] = sums[k].defined() ? sums[k] + gradient : gradient.clone();
    }
  }
  EXPECT_EQ(labels, (std::vector<std::string>{"many", "few"}));
  const auto trained = collect_weights(*trainer.training_run().model, *trainer.training_run().objective);
  for (std::size_t k = 0; k < parameters.size(); ++k) {
    if (!sums[k].defined()) continue;
    const at::Tensor expected = parameters[k].tensor.detach() - 0.1 * sums[k];
    EXPECT_TRUE(at::allclose(trained.at(parameters[k].name), expected, 1e-5, 1e-7)) << parameters[k].name;
  }

  const auto row = rows(folder).at(0);
  EXPECT_NEAR(row["loss"].get<double>(), losses[0] + losses[1], 1e-5);
  EXPECT_NEAR(row["terms"]["many.loss"].get<double>(), losses[0], 1e-5);
  EXPECT_NEAR(row["terms"]["few.loss"].get<double>(), losses[1], 1e-5);
}

// `accumulation` is the number of batches of each source in a step. The losses of a source's batches are averaged.
TEST_F(MixtureTraining, AccumulationCountsBatchesOfEachSource) {
  const std::string big = folder_ / "big", small = folder_ / "small";
  const std::vector<std::string> shared = {mixture_of("accumulate"), "training.steps=2", "optimizer.eps=0.1",
                                           "data.loader.shuffle=false", "training.clip_norm=null"};
  const auto train = [&](const std::string& run, const std::vector<std::string>& more) {
    Trainer trainer(tiny_config(run, with(more, shared), "test_distance"), "none");
    trainer.run();
    EXPECT_EQ(trainer.state().samples, 32);
    return collect_weights(*trainer.training_run().model, *trainer.training_run().objective);
  };
  const auto a = train(big, {}), b = train(small, {"data.loader.batch_size=4", "training.accumulation=2"});
  for (const auto& [name, tensor] : a) EXPECT_TRUE(at::allclose(tensor, b.at(name), 1e-4, 1e-5)) << name;
  EXPECT_TRUE(contains(io::read_file(small + "/log.txt"), "16 samples per step (4 x 2 x 2 sources)"));
  const auto x = rows(big), y = rows(small);
  for (const char* term : {"many.loss", "few.loss", "few.loss_distance"})
    EXPECT_NEAR(x[1]["terms"][term].get<double>(), y[1]["terms"][term].get<double>(), 1e-4) << term;
}

TEST_F(MixtureTraining, RejectsResumingWithAnotherMixture) {
  const std::string run = train("run", {mixture_of("concat")});
  const std::string error = error_of([&] { Trainer(tiny_config(run, {mixture_of("sequential")}), "auto"); });
  EXPECT_TRUE(contains(error, "was trained with other settings: data.train.mode: concat there, sequential here"));
}

}  // namespace
}  // namespace tessera
