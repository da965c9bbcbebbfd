// Evaluation during a run: tasks that do not fit their data, and tasks that fail.
#include <filesystem>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/training/tiny_run.h"
#include <tessera/base/version.h>
#include <tessera/evaluation/evaluate.h>
#include <tessera/evaluation/task.h>
#include <tessera/io/atomic_file.h>
#include <tessera/training/memory/dry_run.h>
#include <tessera/training/trainer.h>

namespace tessera {
namespace {

constexpr const char* kMisfit = "evaluation.tasks[1] (segmentation): no sample of csv ";

class FailingTask final : public EvaluationTask {
 public:
  TaskResult run(const Embedder&, const EvaluationContext&) const override {
    throw std::runtime_error("the disk <is> gone\nsecond line");
  }
};

class EvaluationInARun : public ::testing::Test {
 protected:
  EvaluationInARun() {
    register_test_modules();
    if (!evaluation_tasks().contains("test_failing"))
      evaluation_tasks().add<config::NoSettings>(
          "test_failing", "fails", [](const config::NoSettings&) { return std::make_shared<FailingTask>(); });
    const std::string picture = TESSERA_SOURCE_DIR "/docs/images/slots.png";
    io::write_file(folder_ / "pictures.csv", "filepath\ttitle\tclass\n" + picture + "\ta slot\t0\n");
  }

  // Pictures without masks.
  std::string unmasked() const { return "{name: csv, label_key: class, path: " + (folder_ / "pictures.csv") + "}"; }
  Config config(const std::string& tasks) const {
    return tiny_config(folder_ / "run", {"evaluation={every_steps: 3, tasks: " + tasks + "}"});
  }
  nlohmann::json evaluated(const std::string& step) const {
    return nlohmann::json::parse(io::read_file(folder_ / ("run/evaluation/step_" + step + ".json")));
  }

  TemporaryFolder folder_;
};

TEST_F(EvaluationInARun, ATaskThatDoesNotFitItsDataStopsTheRunBeforeItsFirstStep) {
  const Config unfit = config("[zero_shot, {name: segmentation, classes: [a], source: " + unmasked() + "}]");
  const std::string text = error_of([&] { Trainer(unfit, "none"); });
  EXPECT_EQ(text.find(kMisfit), 0u) << text;
  EXPECT_NE(text.find(" has a mask. In the list, no column is named for the mask (mask_key): name other data in its "
                      "`source`, or leave the task out"),
            std::string::npos)
      << text;
  EXPECT_TRUE(io::read_file(folder_ / "run/metrics.jsonl").empty());
  EXPECT_EQ(error_of([&] { dry_run(unfit); }), text) << "as the dry run tells";
}

TEST_F(EvaluationInARun, ADryRunPassesOverTasksWhoseDataAreNotThere) {
  const Config elsewhere = config("[zero_shot, {name: knn, k: 1, source: {name: csv, path: nowhere.csv}}]");
  const DryRunReport report = dry_run(elsewhere);
  EXPECT_EQ(report.tasks, 1);
  ASSERT_EQ(report.unread_tasks.size(), 1u);
  EXPECT_EQ(report.unread_tasks[0].find("evaluation.tasks[1] (knn): "), 0u) << report.unread_tasks[0];
  const std::string text = to_text(report, elsewhere);
  EXPECT_NE(text.find("evaluation tasks  1 fit their data\nnot looked at     evaluation.tasks[1] (knn): "),
            std::string::npos)
      << text;
}

TEST_F(EvaluationInARun, ATaskThatFailsIsAWarningAndTheOthersResultsAreWritten) {
  const Config failing = config("[{name: zero_shot, topk: [1]}, test_failing, {name: knn, k: 1}]");
  EXPECT_EQ(Trainer(failing, "none").run(), Outcome::finished);
  EXPECT_EQ(Trainer(failing, "auto").run(), Outcome::finished) << "a run that is over, resumed";
  for (const char* step : {"0000003", "0000006"}) {
    const auto json = evaluated(step);
    ASSERT_EQ(json.at("results").size(), 2u) << json.dump();
    EXPECT_EQ(json.at("results").at(1).at("task"), "knn");
    ASSERT_EQ(json.at("failed").size(), 1u);
    EXPECT_EQ(json.at("failed").at(0).at("place"), "evaluation.tasks[1] (test_failing)");
    EXPECT_EQ(json.at("failed").at(0).at("reason"), "the disk <is> gone");
    EXPECT_EQ(json.at("results").at(0).at("settings").at("topk"), nlohmann::json({1}));
    EXPECT_EQ(json.at("version"), version());
    for (const char* key : {"commit", "date", "device", "weights"}) EXPECT_TRUE(json.contains(key)) << key;
  }
  const std::string log = io::read_file(folder_ / "run/log.txt");
  EXPECT_NE(log.find("warning step 3: evaluation.tasks[1] (test_failing) failed: the disk <is> gone; training goes on"),
            std::string::npos)
      << log;
  const std::string page = io::read_file(folder_ / "run/run.html");
  EXPECT_NE(page.find("Evaluation tasks that failed"), std::string::npos);
  EXPECT_NE(
      page.find("<td>evaluation.tasks[1] (test_failing)</td><td class=\"n\">6</td><td>the disk &lt;is&gt; gone</td>"),
      std::string::npos)
      << page;
}

TEST_F(EvaluationInARun, ParametersAreCountedAlikeEverywhere) {
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
  EXPECT_NE(to_text(dry, frozen).find("parameters        " + words + "\n"), std::string::npos);
  EXPECT_NE(io::read_file(folder_ / "run/log.txt").find("parameters " + words + "\n"), std::string::npos);
  EXPECT_NE(io::read_file(folder_ / "run/run.html").find(words), std::string::npos);

  EvaluateOptions options;
  options.checkpoint = folder_ / "run";
  options.task = "retrieval";
  options.device = "cpu";
  options.out = folder_ / "out";
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(evaluate(options), 0);
  ::testing::internal::GetCapturedStdout();
  EXPECT_NE(io::read_file(folder_ / "out/report.html").find(model_words), std::string::npos);
}

}  // namespace
}  // namespace tessera
