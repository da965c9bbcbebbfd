// Tests `evaluate --compare`, which measures several models on the same tasks.
#include <algorithm>

#include "tests/support/page_data.h"
#include "tests/evaluation/evaluate_fixture.h"
#include <tessera/report/task_outcomes.h>

namespace tessera {
namespace {

class EvaluateCompare : public Evaluate {
 protected:
  EvaluateCompare() {
    for (const char* name : {"a", "b"}) {
      options.compare.push_back(path(name) + "/model.safetensors");
      fs::create_directories(folder_ / name);
      save(options.compare.back(), *name);
    }
    options.checkpoint.clear();
    options.out = path("page.html");
    options.overwrite = false;
  }
  void save(const std::string& path, int seed) {
    at::manual_seed(seed);
    file.weights = DualEncoder(file.model).state_dict();
    save_model_file(path, file);
  }
  nlohmann::json results_of(const std::string& name, const std::string& folder = "evaluation") const {
    return nlohmann::json::parse(io::read_file(path(name + "/" + folder + "/results.json")));
  }
  bool exists(const std::string& path) const { return fs::exists(folder_ / path); }
};

TEST_F(EvaluateCompare, MeasuresEachModelAndWritesOnePage) {
  options.task = "zero_shot";
  options.json = true;
  EXPECT_EQ(run(), 0);
  const auto scores = nlohmann::json::parse(printed).at("scores");
  ASSERT_EQ(scores.at(0).at("metric"), "mean_per_class");
  for (std::size_t i = 0; i < 2; ++i)
    EXPECT_EQ(scores.at(0).at("values").at(i),
              results_of(i == 0 ? "a" : "b").at("tasks").at(0).at("metrics").at("mean_per_class"));
  EXPECT_EQ(scores.at(0).at("differences").size(), 1u) << "the models were measured on the same samples";
  const std::string html = io::read_file(options.out);
  EXPECT_TRUE(contains(html, "Comparison of 2 runs"));
  expect_self_contained(html);
}

TEST_F(EvaluateCompare, ReusesResultsOfTheSameSettings) {
  options.task = "zero_shot";
  run();
  io::write_file(path("a/evaluation/report.html"), "untouched");
  run();
  EXPECT_EQ(io::read_file(path("a/evaluation/report.html")), "untouched");
  EXPECT_FALSE(exists("a/evaluation-2"));
  options.overrides = {"topk=[1]"};
  run();
  EXPECT_TRUE(exists("a/evaluation-2")) << "other settings are measured";
  save(options.compare[1], 99);
  run();
  EXPECT_FALSE(exists("a/evaluation-3"));
  EXPECT_TRUE(exists("b/evaluation-3")) << "other weights are measured";
  file.model.preprocessing.mean = {0.1, 0.2, 0.3};
  save(options.compare[0], 'a');
  run();
  EXPECT_TRUE(exists("a/evaluation-3")) << "other settings of the model with the same weights are measured";
  options.overwrite = true;
  run();
  EXPECT_NE(io::read_file(path("a/evaluation/report.html")), "untouched");
}

TEST_F(EvaluateCompare, ReportsMistakesInOneLine) {
  options.task = "zero_shot";
  const std::string b = options.compare[1];
  options.compare.resize(1);
  EXPECT_EQ(error(),
            "--compare " + options.compare[0] + ": a comparison needs at least two models: name two or more");
  options.compare.push_back(options.compare[0]);
  EXPECT_EQ(error(), "--compare: " + options.compare[0] + " is given twice");
  options.compare[1] = b;
  file.extra["config"] = "data: {validation: {name: shapes, split: validation, size: 8}}\n";
  save(b, 1);
  EXPECT_TRUE(contains(error(), "the validation data of " + b));
  EXPECT_TRUE(error().ends_with("give --data for all")) << error();
  options.task = "";
  file.extra["config"] = "evaluation: {tasks: [retrieval]}\n";
  save(options.compare[0], 1);
  file.extra["config"] = "evaluation: {tasks: [zero_shot]}\n";
  save(b, 1);
  EXPECT_TRUE(error().ends_with("give --suite FILE or --task NAME for all")) << error();
  EXPECT_FALSE(exists("a/evaluation")) << "nothing is measured until all models are known to fit";
}

TEST_F(Evaluate, SampleOutcomesAddUpToTheMetricsAndHaveIntervals) {
  write_suite(
      "source: {name: shapes, split: test, size: 12}\n"
      "train: {name: shapes, size: 40}\n"
      "tasks: [zero_shot, retrieval, segmentation, hard_negatives, {name: linear_probe, l2: 0.01}, {name: knn, k: "
      "3}, interpretability]\n");
  ASSERT_EQ(run(), 0);
  const auto tasks = results().at("tasks");
  const std::string path = options.out + "/samples.json";
  const auto outcomes = report::task_outcomes(nlohmann::json::parse(io::read_file(path)), path);
  ASSERT_EQ(outcomes.size(), tasks.size());
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    EXPECT_EQ(outcomes[i].samples, 12);
    EXPECT_EQ(outcomes[i].mark, outcomes[0].mark);
    for (const auto& metric : outcomes[i].metrics) {
      const double value = tasks[i].at("metrics").at(metric.metric);
      EXPECT_NEAR(report::value_of(metric), value, 1e-9) << tasks[i].at("task") << " " << metric.metric;
      const auto interval = tasks[i].at("intervals").at(metric.metric);
      EXPECT_LE(interval[0], interval[1]);
    }
    for (const auto& [name, value] : tasks[i].at("metrics").items()) {
      const bool judged = std::any_of(outcomes[i].metrics.begin(), outcomes[i].metrics.end(),
                                      [&, name = name](const auto& each) { return each.metric == name; });
      const bool of_no_sample =
          name == "train_top1" || name == "log_loss" || name == "l2" || name == "tokens" || name == "median_rank" ||
          name == "dataset_miou_with_background";
      EXPECT_TRUE(judged || of_no_sample) << tasks[i].at("task") << " " << name;
    }
  }
}

}  // namespace
}  // namespace tessera
