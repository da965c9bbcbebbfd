// Tests evaluation during a run, including tasks whose data is unsuitable and tasks that fail.
#include <csignal>
#include <filesystem>
#include <set>
#include <utility>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "src/models/text_conditioned_pool.h"
#include "src/training/memory/dry_run.h"
#include "src/training/run/run_evaluation.h"
#include "src/training/stages.h"
#include "src/training/trainer.h"
#include "tests/support/page_data.h"
#include "tests/training/tiny_run.h"
#include <tessera/base/text.h>
#include <tessera/base/version.h>
#include <tessera/evaluation/evaluate.h>
#include <tessera/evaluation/task.h>
#include <tessera/io/atomic_file.h>

namespace tessera {
namespace {

constexpr const char* kMisfit = "evaluation.tasks[1] (segmentation): no sample of csv ";

class FailingTask final : public EvaluationTask {
 public:
  TaskResult run(const Embedder&, const EvaluationContext&) const override {
    throw std::runtime_error("the disk <is> gone\nsecond line");
  }
};

// If true, SignalTask raises SIGTERM once and sets this to false.
bool raises_signal = false;

class SignalTask final : public EvaluationTask {
 public:
  TaskResult run(const Embedder&, const EvaluationContext&) const override {
    if (std::exchange(raises_signal, false)) ::raise(SIGTERM);
    return {.samples = 1};
  }
};

// An objective: the squared distance between a caption and its image's features, which are pooled with this caption as the query.
class PooledDistance final : public Objective {
 public:
  PooledDistance(const TextConditionedPoolSettings& settings, const ObjectiveContext& context)
      : pool_(register_module("pool", std::make_shared<TextConditionedPool>(settings, context.embed_dim))) {}
  Losses forward(const Features& features, const StepContext&) override {
    const at::Tensor& text = features.text().global;
    const at::Tensor pooled = pool_->forward(features.image().tokens, text.unsqueeze(1)).pooled.squeeze(1);
    return {(pooled - text).square().sum(1).mean(), {}};
  }
  Needs needs() const override {
    Needs out;
    out.images["image"].tokens = true;
    return out;
  }

 private:
  std::shared_ptr<TextConditionedPool> pool_;
};

class EvaluationInARun : public ::testing::Test {
 protected:
  EvaluationInARun() {
    register_test_modules();
    if (!evaluation_tasks().contains("test_failing"))
      evaluation_tasks().add<config::NoSettings>(
          "test_failing", "fails", [](const config::NoSettings&) { return std::make_shared<FailingTask>(); });
    if (!evaluation_tasks().contains("test_signal"))
      evaluation_tasks().add<config::NoSettings>(
          "test_signal", "interrupts", [](const config::NoSettings&) { return std::make_shared<SignalTask>(); });
    if (!objectives().contains("test_pooled"))
      objectives().add<TextConditionedPoolSettings>(
          "test_pooled", "distance of texts from their pooled image features",
          [](const TextConditionedPoolSettings& settings, const ObjectiveContext& context) {
            return std::make_shared<PooledDistance>(settings, context);
          });
    const std::string image = TESSERA_SOURCE_DIR "/docs/images/slots.png";
    io::write_file(folder_ / "pictures.csv", "filepath\ttitle\tclass\n" + image + "\ta slot\t0\n");
  }

  // Returns the settings of a source of images without masks.
  std::string unmasked() const { return "{name: csv, label_keys: class, path: " + (folder_ / "pictures.csv") + "}"; }
  Config config(const std::string& tasks) const {
    return tiny_config(folder_ / "run", {"evaluation={every_steps: 3, tasks: " + tasks + "}"});
  }
  nlohmann::json evaluated(const std::string& step) const {
    return nlohmann::json::parse(io::read_file(folder_ / ("run/evaluation/step_" + step + ".json")));
  }

  TemporaryFolder folder_;
};

TEST_F(EvaluationInARun, StopsBeforeTheFirstStepIfATaskDoesNotFitItsData) {
  const Config unfit = config("[zero_shot, {name: segmentation, classes: [a], source: " + unmasked() + "}]");
  const std::string text = error_of([&] { Trainer(unfit, "none"); });
  EXPECT_EQ(text.find(kMisfit), 0u) << text;
  EXPECT_TRUE(contains(text,
                       " has a mask. In the list, no field is named for mask (mask_keys): name other data in its "
                       "`source`, or leave the task out"));
  EXPECT_TRUE(io::read_file(folder_ / "run/metrics.jsonl").empty());
  EXPECT_EQ(error_of([&] { dry_run(unfit); }), text) << "the dry run reports the same error";
}

TEST_F(EvaluationInARun, DryRunSkipsTasksWithMissingData) {
  const Config elsewhere = config("[zero_shot, {name: knn, k: 1, source: {name: csv, path: nowhere.csv}}]");
  const DryRunReport report = dry_run(elsewhere);
  EXPECT_EQ(report.tasks, 1);
  ASSERT_EQ(report.unread_tasks.size(), 1u);
  EXPECT_EQ(report.unread_tasks[0].place, "evaluation.tasks[1] (knn)");
  const std::string text = to_text(report, elsewhere);
  EXPECT_TRUE(contains(text, "evaluation tasks  1 fit their data\nnot checked       evaluation.tasks[1] (knn): "));
}

TEST_F(EvaluationInARun, DryRunNamesMissingFilesAsTheCause) {
  io::write_file(folder_ / "run.yaml",
                 tiny_yaml() + "run: {folder: " + folder_ / "run" +
                     "}\nevaluation: {every_steps: 3, tasks: [retrieval, validation_loss, {name: knn, k: 1}]}\n");
  const auto report_with = [&](const std::string& missing) {
    const Config config = load_stages(folder_ / "run.yaml", {missing}, /*without_vocabulary=*/true).front().config;
    const DryRunReport report = dry_run(config);
    const std::string text = to_text(report, config);
    EXPECT_FALSE(contains(text, "no text tower"));
    EXPECT_TRUE(text.ends_with(concat("warning: ", report.warnings.back(), "\n"))) << text;
    return report;
  };
  const DryRunReport no_vocabulary = report_with("tokenizer={name: sentencepiece, model: no/such.model}");
  EXPECT_EQ(no_vocabulary.tasks, 1) << "knn does not read texts";
  ASSERT_EQ(no_vocabulary.unread_tasks.size(), 2u);
  EXPECT_EQ(no_vocabulary.unread_tasks[0].place, "evaluation.tasks[0] (retrieval)");
  EXPECT_TRUE(contains(no_vocabulary.unread_tasks[0].reason, "no/such.model: no such file"));
  ASSERT_EQ(no_vocabulary.warnings.size(), 1u) << "one cause gives one warning";
  EXPECT_TRUE(no_vocabulary.warnings[0].starts_with("a run would not start, because its vocabulary cannot be read: "));

  const DryRunReport no_training = report_with("data.train={name: csv, path: no/train.csv}");
  EXPECT_EQ(no_training.tasks, 2) << "all tasks except knn, which learns from the training data";
  EXPECT_TRUE(no_training.warnings.at(0).starts_with("a run would not start, because its training data cannot be read: "));

  const DryRunReport no_validation = report_with("data.validation={name: csv, path: no/validation.csv}");
  EXPECT_EQ(no_validation.tasks, 0);
  EXPECT_TRUE(no_validation.synthetic.empty()) << "the training samples exist";
  EXPECT_TRUE(
      no_validation.warnings.at(0).starts_with("a run would not start, because its validation data cannot be read: "));
}

TEST_F(EvaluationInARun, ResumedRunRepeatsAnEvaluationThatASignalInterrupted) {
  const std::string tasks = "[test_signal, {name: knn, k: 1}]";
  for (const char* at : {"3", "6"}) {
    const std::string run = concat("run_", at);
    const Config config = tiny_config(folder_ / run, {concat("evaluation={every_steps: ", at, ", tasks: ", tasks, "}")});
    raises_signal = true;
    Trainer first(config, "none");
    EXPECT_EQ(first.run(), Outcome::interrupted) << at;
    EXPECT_EQ(first.stop_signal(), SIGTERM);
    const std::string file = folder_ / (run + "/evaluation/step_000000" + at + ".json");
    EXPECT_FALSE(std::filesystem::exists(file));
  }
  for (const char* at : {"3", "6"}) {
    const std::string run = concat("run_", at);
    const Config config = tiny_config(folder_ / run, {concat("evaluation={every_steps: ", at, ", tasks: ", tasks, "}")});
    EXPECT_EQ(Trainer(config, "auto").run(), Outcome::finished);
    const auto file = nlohmann::json::parse(io::read_file(folder_ / (run + "/evaluation/step_000000" + at + ".json")));
    EXPECT_EQ(file.at("tasks").size(), 2u);
  }
  EXPECT_EQ(Trainer(config(tasks), "none").run(), Outcome::finished);
  expect_same_curve(folder_ / "run_3", folder_ / "run", 0);
}

TEST_F(EvaluationInARun, SignalInTheLastTaskStillWritesResultsAndFinishesTheRun) {
  raises_signal = true;
  const Config last = tiny_config(folder_ / "run", {"evaluation={every_steps: 6, tasks: [{name: knn, k: 1}, test_signal]}"});
  EXPECT_EQ(Trainer(last, "none").run(), Outcome::finished);
  EXPECT_EQ(evaluated("0000006").at("tasks").size(), 2u);
  raises_signal = true;
  EXPECT_EQ(Trainer(last, "auto").run(), Outcome::finished) << "results that were written are not measured again";
  EXPECT_TRUE(std::exchange(raises_signal, false));
  const std::string log = io::read_file(folder_ / "run/log.txt");
  EXPECT_TRUE(contains(log, "; 6 steps are trained, none are left\n"));
  EXPECT_TRUE(contains(log, "nothing left to train; the model is "));
  EXPECT_FALSE(contains(log, "6 steps, from step 6"));
}

TEST_F(EvaluationInARun, SkipsBadSamplesAndReportsThemOnceForAnyShare) {
  const std::string image = TESSERA_SOURCE_DIR "/tests/data/images/small_grey.jpg";
  std::string list = "filepath\ttitle\n";
  for (int i = 0; i < 60; ++i) list += concat(image, "\ta caption ", i, "\n", "missing_", i, ".jpg\tanother ", i, "\n");
  io::write_file(folder_ / "bad.csv", list);
  const Config bad = tiny_config(folder_ / "run", {concat("data.validation={name: csv, path: ", folder_ / "bad.csv", "}"),
                                                   "evaluation={every_steps: 3, tasks: [retrieval, validation_loss]}"});
  EXPECT_EQ(Trainer(bad, "none").run(), Outcome::finished);
  for (const char* step : {"0000003", "0000006"}) {
    const auto json = evaluated(step);
    EXPECT_TRUE(json.at("failed").empty()) << json.at("failed").dump();
    EXPECT_EQ(json.at("tasks").at(1).at("texts"), 56) << "seven batches of eight";
    EXPECT_EQ(json.at("tasks").at(1).at("samples"), 1) << "all good rows name one image";
    EXPECT_LE(json.at("tasks").at(1).at("skipped").at("no_image"), 60) << "counted in one pass only";
  }
  int named = 0;
  const std::string log = io::read_file(folder_ / "run/log.txt");
  for (const std::string& line : split(log, '\n')) named += line.find(" warning skipped: ") != std::string::npos;
  EXPECT_EQ(named, 10) << log;
  const std::string warning = " cannot be used; the loss is measured on the others";
  const std::size_t first = log.find(warning);
  EXPECT_NE(first, std::string::npos) << log;
  EXPECT_EQ(log.find(warning, first + 1), std::string::npos) << "once";
  EXPECT_FALSE(contains(io::read_file(folder_ / "run/run.html"), "warning skipped: "));
}

TEST_F(EvaluationInARun, RejectsAnUnknownMetricBeforeTheFirstStep) {
  const Config unknown =
      tiny_config(folder_ / "run", {"evaluation={every_steps: 3, tasks: [{name: retrieval, topk: [1, 5]}]}",
                                    "checkpoint.keep_best.metric=retrieval.recall"});
  const std::string expected =
      "checkpoint.keep_best.metric: there is no metric called retrieval.recall; measured: "
      "retrieval.image_to_text_recall@1, retrieval.image_to_text_recall@5, retrieval.text_to_image_recall@1 and "
      "retrieval.text_to_image_recall@5";
  EXPECT_EQ(error_of([&] { dry_run(unknown); }), expected);
  EXPECT_EQ(error_of([&] { Trainer(unknown, "none"); }), expected);
}

TEST_F(EvaluationInARun, FailingTaskIsAWarningAndOtherResultsAreWritten) {
  const Config failing = config("[{name: zero_shot, topk: [1]}, test_failing, {name: knn, k: 1}]");
  EXPECT_EQ(Trainer(failing, "none").run(), Outcome::finished);
  EXPECT_EQ(Trainer(failing, "auto").run(), Outcome::finished) << "resuming a finished run";
  for (const char* step : {"0000003", "0000006"}) {
    const auto json = evaluated(step);
    ASSERT_EQ(json.at("tasks").size(), 2u) << json.dump();
    EXPECT_EQ(json.at("tasks").at(1).at("task"), "knn");
    ASSERT_EQ(json.at("failed").size(), 1u);
    EXPECT_EQ(json.at("failed").at(0).at("place"), "evaluation.tasks[1] (test_failing)");
    EXPECT_EQ(json.at("failed").at(0).at("reason"), "the disk <is> gone");
    EXPECT_EQ(json.at("tasks").at(0).at("settings").at("topk"), nlohmann::json({1}));
    EXPECT_EQ(json.at("version"), version());
    for (const char* key : {"commit", "date", "device", "weights"}) EXPECT_TRUE(json.contains(key)) << key;
  }
  const std::string log = io::read_file(folder_ / "run/log.txt");
  EXPECT_TRUE(contains(
      log, "warning step 3: evaluation.tasks[1] (test_failing) failed: the disk <is> gone; training continues"));
  EXPECT_EQ(page_data(io::read_file(folder_ / "run/run.html")).at("failed").dump(),
            R"x([{"reason":"the disk <is> gone","step":6,"task":"evaluation.tasks[1] (test_failing)"}])x");
}

TEST_F(EvaluationInARun, CaptionsThatAreNotUtf8AreWrittenWithAReplacement) {
  io::write_file(folder_ / "latin.csv", "filepath\ttitle\n" TESSERA_SOURCE_DIR "/docs/images/slots.png\ta caf\xe9\n");
  EXPECT_EQ(Trainer(config("[{name: k_precision, source: {name: csv, path: " + folder_ / "latin.csv" + "}}]"), "none").run(),
            Outcome::finished);
  const nlohmann::json readings = evaluated("0000006").at("tasks").at(0).at("readings");
  EXPECT_EQ(readings.begin().value(), "a caf\uFFFD (100.00%)");
}

TEST_F(EvaluationInARun, UsesTheLearnedFactorOfTheCosines) {
  const Config clip = config("[{name: retrieval}]");
  EXPECT_NEAR(evaluation_context(Trainer(clip, "none").training_run(), clip).logit_scale, 1 / 0.07, 1e-3);
}

TEST_F(EvaluationInARun, TasksOfTheSameNameAreKeptApart) {
  const Config twice =
      tiny_config(folder_ / "run", {"evaluation={every_steps: 3, tasks: [{name: knn, k: 1}, {name: knn, k: 3}]}",
                                    "checkpoint.keep_best.metric=knn_2.top1"});
  EXPECT_EQ(Trainer(twice, "none").run(), Outcome::finished);
  const std::string table = io::read_file(folder_ / "run/metrics.csv"), header = table.substr(0, table.find('\n'));
  for (const char* column : {"evaluation.knn.top1", "evaluation.knn_2.top1"}) EXPECT_TRUE(contains(header, column)) << header;
  EXPECT_TRUE(std::filesystem::exists(folder_ / "run/checkpoints/best"));
  EXPECT_EQ(Trainer(twice, "auto").run(), Outcome::finished);
  EXPECT_TRUE(contains(io::read_file(folder_ / "run/run.html"), "\"knn_2.top1\"")) << "read back from the files";
}

TEST_F(EvaluationInARun, ResultsThatCannotBeWrittenDoNotEndTheRun) {
  io::write_file(folder_ / "run/evaluation", "a file where the folder should be");
  EXPECT_EQ(Trainer(config("[{name: knn, k: 1}]"), "none").run(), Outcome::finished);
  const std::string file = folder_ / "run/evaluation/step_0000003.json";
  EXPECT_TRUE(contains(io::read_file(folder_ / "run/log.txt"),
                       "error step 3: the evaluation is not saved: " + file + ": cannot create the folder: "));
}

TEST_F(EvaluationInARun, ReportsTheSameParameterCountsEverywhere) {
  const Config frozen = tiny_config(folder_ / "run", {"parameters.frozen=[image]", "training.steps=2"});
  const DryRunReport dry = dry_run(frozen);
  Trainer trainer(frozen, "none");
  trainer.run();
  const ParameterCount count = count_parameters(trainer.training_run());
  const ParameterCount of_model = count_parameters(*trainer.training_run().model);
  EXPECT_EQ(count.objective, 1) << "the logit scale";
  EXPECT_EQ(count.trained, count.text + 1);
  EXPECT_EQ(of_model.model(), count.model());
  const std::string words = describe(count), model_words = describe(of_model);
  EXPECT_TRUE(words.starts_with(model_words + "; 1 more of the objective; ")) << words;
  EXPECT_EQ(describe(dry.parameters), words);
  EXPECT_TRUE(contains(to_text(dry, frozen), "parameters        " + words + "\n"));
  EXPECT_TRUE(contains(io::read_file(folder_ / "run/log.txt"), "parameters " + words + "\n"));
  EXPECT_TRUE(contains(io::read_file(folder_ / "run/run.html"), words));

  EvaluateOptions options;
  options.checkpoint = folder_ / "run";
  options.task = "retrieval";
  options.device = "cpu";
  options.out = folder_ / "out";
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(evaluate(options), 0);
  ::testing::internal::GetCapturedStdout();
  EXPECT_TRUE(contains(io::read_file(folder_ / "out/report.html"), model_words));
}

TEST_F(EvaluationInARun, MeasuresThePoolOfTheObjectiveAsItsCheckpointDoes) {
  for (const std::string objective : {"{name: test_pooled, heads: 2}",
                                      "{name: weighted_sum, objectives: [{name: test_distance, weight: 1}, "
                                      "{name: test_pooled, label: fine, weight: 1, heads: 4, zero_token: false}]}"}) {
    const std::string name = objective.find("fine") == std::string::npos ? "alone" : "sum";
    Trainer(tiny_config(folder_ / name, {"objective=" + objective, "training.steps=3",
                                         "evaluation={every_steps: 3, tasks: [{name: retrieval, similarity: conditioned}]}"}),
            "none")
        .run();
    const auto in_run =
        nlohmann::json::parse(io::read_file(folder_ / (name + "/evaluation/step_0000003.json"))).at("tasks").at(0);
    EXPECT_TRUE(in_run.at("data").get<std::string>().ends_with(" (conditioned)")) << in_run;

    EvaluateOptions options;
    options.checkpoint = folder_ / name;
    options.device = "cpu";
    options.out = folder_ / (name + "/out");
    ::testing::internal::CaptureStdout();
    EXPECT_EQ(evaluate(options), 0);
    ::testing::internal::GetCapturedStdout();
    const auto of_file = nlohmann::json::parse(io::read_file(options.out + "/results.json")).at("tasks").at(0);
    EXPECT_EQ(of_file.at("metrics"), in_run.at("metrics"));
  }
}

TEST_F(EvaluationInARun, MeasuresNestedWidthsAsItsCheckpointDoes) {
  const std::string judged = "retrieval.width_2_image_to_text_recall@1";
  Trainer(tiny_config(folder_ / "run", {"objective={name: clip, matryoshka: {widths: [2, 4, 8]}}", "training.steps=3", "checkpoint.keep_best.metric=" + judged,
                                        "evaluation={every_steps: 3, tasks: [retrieval, {name: zero_shot, topk: [1, 2]}]}"}),
          "none")
      .run();
  const auto in_run = nlohmann::json::parse(io::read_file(folder_ / "run/evaluation/step_0000003.json")).at("tasks");
  for (const char* metric : {"image_to_text_recall@1", "width_2_image_to_text_recall@1", "width_4_text_to_image_recall@10"})
    EXPECT_TRUE(in_run.at(0).at("metrics").contains(metric)) << in_run;
  for (const char* metric : {"top1", "width_2_top1", "width_4_top2"}) EXPECT_TRUE(in_run.at(1).at("metrics").contains(metric)) << in_run;
  EXPECT_TRUE(std::filesystem::exists(folder_ / "run/checkpoints/best"));

  EvaluateOptions options;
  options.checkpoint = folder_ / "run";
  options.device = "cpu";
  options.out = folder_ / "out";
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(evaluate(options), 0);
  ::testing::internal::GetCapturedStdout();
  const auto of_file = nlohmann::json::parse(io::read_file(options.out + "/results.json")).at("tasks");
  for (const std::size_t task : {0, 1}) EXPECT_EQ(of_file.at(task).at("metrics"), in_run.at(task).at("metrics"));
  EXPECT_TRUE(contains(error_of([&] {
                         Trainer(tiny_config(folder_ / "other", {"objective={name: clip, matryoshka: {widths: [4]}}", "checkpoint.keep_best.metric=" + judged,
                                                                 "evaluation={every_steps: 3, tasks: [retrieval]}"}),
                                 "none");
                       }),
                       "checkpoint.keep_best.metric: there is no metric called " + judged));
}

TEST_F(EvaluationInARun, RejectsConditionedRetrievalWithoutAPoolBeforeTheFirstStep) {
  const std::string text = error_of([&] { Trainer(config("[{name: retrieval, similarity: conditioned}]"), "none"); });
  EXPECT_EQ(text.find("evaluation.tasks[0] (retrieval): retrieval.similarity is conditioned, but there is no text-conditioned pool"),
            0u)
      << text;
}

}  // namespace
}  // namespace tessera
