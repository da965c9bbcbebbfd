#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "src/data/image/encode.h"
#include "src/data/loading/evaluation_reader.h"
#include "src/data/sources/tables.h"
#include "src/training/run/run_loss.h"
#include "src/training/trainer.h"
#include "tests/support/test_name.h"
#include "tests/training/dino_run.h"
#include "tests/training/pyramid_run.h"
#include "tests/training/systems.h"
#include "tests/training/tiny_run.h"
#include <tessera/evaluation/embedder.h>
#include <tessera/io/atomic_file.h>

namespace tessera {
namespace {

using Metrics = std::vector<std::pair<std::string, double>>;

constexpr const char* kTask = "evaluation.tasks=[{name: validation_loss}]";

TaskResult loss_result(const TrainingRun& run, const Config& config, const LossBatches& batches = {}) {
  LossBatches all = batches;
  if (!all.source) all.source = run.validation;
  return run_loss(run, config, 0)->measure(all);
}

nlohmann::json evaluation_of(const std::string& run, const std::string& step) {
  return nlohmann::json::parse(io::read_file(run + "/evaluation/" + step + ".json"))["tasks"];
}

class ValidationLoss : public RunTest, public ::testing::WithParamInterface<const char*> {};

TEST_F(ValidationLoss, IsTheMeanOverTheValidationData) {
  const Config config = tiny_config(folder_ / "run", {}, "test_distance");
  const TrainingRun run = build_training_run(config);
  const TaskResult result = loss_result(run, config);
  EXPECT_EQ(result.samples, 16);

  EvaluationReader reader(run.validation, config.model.preprocessing, 16, 1);
  const std::vector<EvaluationSample> samples = reader.next();
  const DualEncoderEmbedder embedder(run.model, run.tokenizer);
  double sum = 0;
  for (const EvaluationSample& sample : samples) {
    const at::Tensor image = embedder.encode_images(sample.pixels.unsqueeze(0), {}).global;
    const at::Tensor text = embedder.encode_texts({sample.sample.captions.front()}, {}).global;
    sum += (image - text).square().sum().item<double>();
  }
  ASSERT_EQ(result.metrics.size(), 2u);
  EXPECT_EQ(result.metrics[0].first, "loss");
  EXPECT_EQ(result.metrics[1].first, "loss_distance");
  EXPECT_NEAR(result.metrics[0].second, sum / 16, 1e-5 * sum / 16);
  EXPECT_NEAR(result.metrics[1].second, sum / 16, 1e-5 * sum / 16);
}

TEST_F(ValidationLoss, LeavesOutASmallerLastBatchAndSamplesBeyondMaxSamples) {
  const Config config = tiny_config(folder_ / "run");
  const TrainingRun run = build_training_run(config);
  EXPECT_EQ(loss_result(run, config, {.batch_size = 5}).samples, 15);
  EXPECT_EQ(loss_result(run, config, {.max_samples = 13}).samples, 8);
  EXPECT_EQ(error_of([&] { loss_result(run, config, {.max_samples = 7}); }),
            "validation_loss: max_samples is 7, less than one batch of 8: set batch_size to 7 or less");
}

TEST_F(ValidationLoss, CountsTheImagesAndTextsOfRows) {
  const Config config = tiny_config(folder_ / "run");
  const TrainingRun run = build_training_run(config);
  std::string table = "filepath,title\n";
  for (int i = 0; i < 8; ++i) table += concat(i / 4, ".png,a red thing ", i, "\n");
  io::write_file(folder_ / "rows.csv", table);
  for (const int i : {0, 1})
    io::write_file(folder_ / concat(i, ".png"),
                   encode_png({16, 16, std::vector<std::uint8_t>(16 * 16 * 3, static_cast<std::uint8_t>(100 * i))}));
  const TaskResult result =
      loss_result(run, config, {.source = make_csv(PathList{{folder_ / "rows.csv"}}), .batch_size = 8});
  EXPECT_EQ(result.samples, 2);
  EXPECT_EQ(result.texts, 8);
}

TEST_F(ValidationLoss, DoesNotDependOnMicroBatches) {
  const Config whole = tiny_config(folder_ / "run"), parts = tiny_config(folder_ / "run", {"training.micro_batch=3"});
  const TrainingRun run = build_training_run(whole);
  EXPECT_NEAR(loss_result(run, whole).metrics[0].second, loss_result(run, parts).metrics[0].second, 1e-5);
}

TEST_P(ValidationLoss, IsRepeatableAndChangesNothing) {
  const Config config = system_config(GetParam(), folder_.path(), "run");
  TrainingRun run = build_training_run(config);
  Weights before;
  for (const auto& [name, tensor] : collect_weights(*run.model, *run.objective)) before[name] = tensor.detach().clone();
  const Metrics first = loss_result(run, config).metrics;
  run.loader->next();
  at::rand({3});
  EXPECT_EQ(loss_result(run, config).metrics, first);
  ASSERT_GE(first.size(), 1u);
  for (const auto& [name, value] : first) EXPECT_TRUE(std::isfinite(value)) << name;
  expect_equal(collect_weights(*run.model, *run.objective), before);
  EXPECT_TRUE(run.model->is_training());
  EXPECT_TRUE(run.objective->is_training());
}

INSTANTIATE_TEST_SUITE_P(Objectives, ValidationLoss,
                         ::testing::Values("clip", "siglip", "sparc", "filip", "pacl", "gloria", "mgca", "dino", "stair",
                                           "text_group",
                                           "{name: weighted_sum, objectives: [{name: clip, weight: 1}, {name: filip, weight: 0.5, "
                                           "token_drop_rate: 0.5}]}"),
                         test_name<const char*>);

TEST_F(ValidationLoss, IsReportedByARunWithoutChangingItsTraining) {
  const std::string with = train("with", {kTask, "evaluation.every_steps=2"}, "none", "sparc"),
                    without = train("without", {}, "none", "sparc");
  expect_same_curve(with, without, 0);
  double last = 0;
  for (const char* step : {"step_0000002", "step_0000004", "step_0000006"}) {
    const nlohmann::json results = evaluation_of(with, step);
    ASSERT_EQ(results.size(), 1u);
    EXPECT_EQ(results[0]["task"], "validation_loss");
    last = results[0]["metrics"]["loss"].get<double>();
    EXPECT_TRUE(std::isfinite(last));
  }
  EXPECT_TRUE(contains(io::read_file(with + "/run.html"), "validation_loss.loss"));

  const InferenceModel loaded = load_for_inference(with, "cpu");
  const TrainingRun run = build_training_run(tiny_config(with, {}, "sparc"));
  const TaskResult again = checkpoint_loss(loaded)->measure({.source = run.validation});
  EXPECT_NEAR(again.metrics[0].second, last, 1e-6) << "measured on the checkpoint";

  InferenceModel of_own_objective = loaded;
  config::Node settings = config::parse_yaml(loaded.file.extra.at("config"), "config");
  settings.set("objective", config::Node::scalar("margin_rank"));
  of_own_objective.file.extra.at("config") = config::to_yaml(settings);
  const std::string unknown =
      error_of([&] { checkpoint_loss(of_own_objective)->measure({.source = run.validation}); });
  EXPECT_TRUE(contains(unknown, ": unknown objective margin_rank; known: "));
  EXPECT_TRUE(contains(unknown, ": your own objective needs the program that registers it: "));
}

TEST_F(ValidationLoss, UsesTheTeacherIfItIsEvaluated) {
  const Config model = dino_config(folder_ / "run"),
               teacher = dino_config(folder_ / "run", {"evaluation.weights=teacher"});
  const TrainingRun run = build_training_run(model);
  const at::NoGradGuard no_grad;
  for (at::Tensor& parameter : run.teacher->model->parameters()) parameter.mul_(1.5);
  EXPECT_NE(loss_result(run, model).metrics, loss_result(run, teacher).metrics);
}

TEST_F(ValidationLoss, ReportsMissingDataAtTheStart) {
  EXPECT_TRUE(contains(error_of([&] {
                         Trainer(tiny_config(folder_ / "few", {kTask, "data.validation.size=5"}), "none");
                       }),
                       "fewer samples than one batch of 8: set batch_size to 5 or less"));
  const std::string lacking = error_of([&] {
    const std::string shards = write_pyramid_shards(folder_ / "shards");
    Trainer(tiny_config(folder_ / "lacking",
                        {kTask, concat("data.validation={name: webdataset, path: '", shards,
                                       "', caption_keys: [none], json_captions: [], index_cache: 'off'}")}),
            "none");
  });
  EXPECT_TRUE(contains(lacking, "validation_loss: "));
  EXPECT_TRUE(contains(lacking, "missing "));
}

}  // namespace
}  // namespace tessera
