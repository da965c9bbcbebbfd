// Tests the comparison of several runs on one page.
#include <cmath>
#include <filesystem>
#include <regex>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "src/report/comparison.h"
#include "src/report/natural_order.h"
#include "tests/support/page_data.h"
#include "tests/support/error_of.h"
#include "tests/support/temporary_folder.h"
#include <tessera/io/atomic_file.h>

namespace tessera::report {
namespace {

std::string comparing_error(const std::vector<std::string>& folders) {
  return error_of([&] { read_compared_runs(folders); });
}

class ComparisonTest : public FolderTest {
 protected:
  /// Writes a run with settings, two rows of metrics and an evaluation at step 2. Returns the run's folder.
  std::string run(const std::string& name, const std::string& settings, const std::string& metrics) const {
    write(name + "/config.yaml", "# Tessera 1.2.3 (abc)\nrun: {folder: " + name + "}\n" + settings);
    write(name + "/metrics.jsonl",
          R"({"step":1,"loss":3.5,"lr":0.1,"samples_per_second":10,"seconds":60,"samples":8,"terms":{"a":1}})"
          "\n"
          R"({"step":2,"loss":2.5,"lr":0.2,"samples_per_second":20,"seconds":120,"samples":16,"terms":{"a":2}})"
          "\n");
    write(name + "/evaluation/step_00000002.json",
          R"({"step":2,"results":[{"task":"zero_shot","data":"d","metrics":)" + metrics + "}]}");
    return path(name);
  }
};

TEST_F(ComparisonTest, SortsNumbersInMetricNamesAsNumbers) {
  const std::string one = run("one", "", R"({"top1":0.1,"top10":0.5,"top5":0.3,"mean":1})");
  std::vector<std::string> metrics;
  for (const ScoreRow& row : score_rows(read_compared_runs({one}))) metrics.push_back(row.metric);
  EXPECT_EQ(metrics, (std::vector<std::string>{"mean", "top1", "top5", "top10"}));
}

TEST(NaturalOrder, SortsNumbersByValueAndIsStrict) {
  const NaturalOrder less;
  EXPECT_TRUE(less("a@5", "a@10"));
  EXPECT_FALSE(less("a@10", "a@5"));
  EXPECT_TRUE(less("a@1", "a@10"));
  EXPECT_TRUE(less("a", "a1"));
  EXPECT_TRUE(less("i_recall@10", "t_recall@1"));
  EXPECT_FALSE(less("a@10", "a@10"));
}

ScoreRow row_of(const std::vector<ComparedRun>& runs, const std::string& metric) {
  for (const ScoreRow& row : score_rows(runs))
    if (row.metric == metric) return row;
  ADD_FAILURE() << "no row " << metric;
  return {};
}

ComparedRun scored(const std::string& name, const std::vector<std::pair<std::string, double>>& metrics) {
  ComparedRun run;
  run.name = name;
  for (const auto& [metric, value] : metrics) run.scores.push_back({"zero_shot", "d", metric, value});
  return run;
}

TEST_F(ComparisonTest, BestIsTheGreatestShareAndTheLeastLoss) {
  const double nan = std::nan("");
  const std::vector<ComparedRun> runs = {scored("a", {{"top1", 0.5}, {"log_loss", 1}, {"top5", nan}, {"l2", 1}}),
                                         scored("b", {{"top1", 0.75}, {"log_loss", 2}, {"top5", 0.5}, {"l2", 2}}),
                                         scored("c", {{"top1", 0.75}, {"top3", 0.9}, {"top5", 0.25}})};
  using Marks = std::vector<bool>;
  EXPECT_EQ(row_of(runs, "top1").best, (Marks{false, true, true}));
  EXPECT_EQ(row_of(runs, "log_loss").best, (Marks{true, false, false}));
  EXPECT_EQ(row_of(runs, "top5").best, (Marks{false, true, false})) << "NaN is never the best";
  EXPECT_EQ(row_of(runs, "top3").best, (Marks{false, false, false})) << "a single number is not marked as the best";
  EXPECT_EQ(row_of(runs, "l2").best, (Marks{false, false, false})) << "neither is better";
  const std::string table = comparison_markdown(runs);
  EXPECT_NE(table.find("**75.00%**"), std::string::npos) << table;
  EXPECT_NE(table.find("NaN"), std::string::npos);
  EXPECT_TRUE(std::regex_search(table, std::regex("top3 \\(d\\) *\\| *- \\| *- \\| *90.00% \\|"))) << table;
}

TEST_F(ComparisonTest, MarksNoBestAmongEqualNumbers) {
  EXPECT_EQ(row_of({scored("a", {{"top1", 0.5}}), scored("b", {{"top1", 0.5}})}, "top1").best,
            (std::vector<bool>{false, false}));
}

TEST_F(ComparisonTest, DoesNotRankEvaluationsOfDifferentSteps) {
  const auto result = [&](const std::string& name, int step, const char* top1) {
    write(name + "/results.json",
          concat(R"({"step":)", step, R"(,"tasks":[{"task":"zero_shot","data":"d","metrics":{"top1":)", top1, "}}]}"));
    return path(name);
  };
  const auto apart = read_compared_runs({result("a", 60, "0.5"), result("b", 40, "0.25")});
  const ScoreRow row = row_of(apart, "top1");
  EXPECT_EQ(row.best, (std::vector<bool>{false, false}));
  EXPECT_EQ(row.steps, (std::vector<std::optional<std::int64_t>>{60, 40}));
  const std::string table = comparison_markdown(apart);
  const nlohmann::json data = page_data(comparison_page(apart));
  EXPECT_TRUE(std::regex_search(table, std::regex("step measured *\\| *60 \\| *40 \\|"))) << table;
  EXPECT_EQ(table.find("**"), std::string::npos);
  for (const std::string& text : {table, data.at("note_on_steps").get<std::string>()})
    EXPECT_NE(text.find("Measured after different numbers of steps"), std::string::npos) << text;
  EXPECT_TRUE(data.at("scores").at(0).at("steps_differ").get<bool>());
  EXPECT_EQ(comparison_json(apart).at("scores").at(0).at("steps").dump(), "[60,40]");

  const auto same = read_compared_runs({path("a"), result("c", 60, "0.25")});
  EXPECT_EQ(row_of(same, "top1").best, (std::vector<bool>{true, false}));
  EXPECT_EQ(page_data(comparison_page(same)).at("note_on_steps"), "");
}

TEST_F(ComparisonTest, NamesATaskOfOneRunInOneLine) {
  std::vector<ComparedRun> runs = {scored("a", {{"top1", 0.5}}), scored("b", {{"top1", 0.25}})};
  runs[1].scores.push_back({"knn", "e", "top1", 0.125});
  const std::string table = comparison_markdown(runs);
  const nlohmann::json data = page_data(comparison_page(runs));
  EXPECT_NE(table.find("only b: knn (e)\n"), std::string::npos) << table;
  EXPECT_EQ(data.at("lone").dump(), R"x(["only b: knn (e)"])x");
  EXPECT_EQ(table.find("12.50%"), std::string::npos) << table;
  EXPECT_FALSE(data.at("scores").at(0).at("lone").get<bool>());
  EXPECT_TRUE(data.at("scores").at(1).at("lone").get<bool>()) << "the page shows no table of it";
  EXPECT_EQ(comparison_json(runs).at("scores").size(), 2u) << "JSON has all numbers";
  EXPECT_FALSE(page_data(comparison_page({runs[1]})).at("scores").at(1).at("lone").get<bool>()) << "a single run shows all its numbers";
}

TEST_F(ComparisonTest, ShowsAMissingTaskAsOneSetting) {
  const auto runs = read_compared_runs(
      {run("a", "evaluation: {tasks: [{name: knn, k: 5, classes: []}, {name: zero_shot, topk: [1]}]}\n", "{}"),
       run("b", "evaluation: {tasks: [{name: zero_shot, topk: [1, 3]}]}\n", "{}")});
  const std::vector<SettingRow> rows = differing_settings(runs);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].key, "evaluation.tasks.knn");
  EXPECT_EQ(rows[0].values, (std::vector<std::optional<std::string>>{"yes", std::nullopt}));
  EXPECT_EQ(rows[1].key, "evaluation.tasks.zero_shot.topk");
}

TEST_F(ComparisonTest, ShowsStateAndFactsOfEachRun) {
  const std::string a = run("a", "training: {steps: 60}\nobjective: {name: siglip}\n", "{}");
  for (const char* step : {"0000047", "99999999999999999999"})
    std::filesystem::create_directories(folder_ / "a/checkpoints" / concat("step_", step));
  write("a/log.txt", "14:33:51 info parameters 1,314: image tower 1,024, text tower 290; 1 more of the objective\n");
  write("a/metrics.jsonl", R"({"step":46,"time":"2026-11-23T14:39:30Z","loss":1})" "\n");
  write("a/evaluation/step_00000002.json", R"({"step":2,"device":"a fine machine","results":[]})");
  const auto runs = read_compared_runs({a});
  EXPECT_EQ(step_text(runs[0]), "47 of 60 steps") << "the checkpoint is newer than the last row";
  EXPECT_EQ(state_text(runs[0]), "not finished");
  const std::string html = comparison_page(runs);
  for (const char* text : {"siglip", "1,314: image tower 1,024, text tower 290; 1 more of the objective", "a fine machine",
                           "2026-11-23 14:39:30 UTC"})
    EXPECT_NE(html.find(text), std::string::npos) << text;
  std::filesystem::create_directories(folder_ / "a/checkpoints/step_0000060");
  EXPECT_EQ(state_text(read_compared_runs({a})[0]), "finished");
}

TEST_F(ComparisonTest, KeepsRowsOfATaskTogether) {
  const std::vector<ScoreRow> rows =
      score_rows({ComparedRun{.scores = {{"zero_shot", "d", "top1", 0}, {"knn", "d", "top1", 0}}},
                  ComparedRun{.scores = {{"zero_shot", "d", "top5", 0}}}});
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0].task + rows[0].metric, "zero_shottop1");
  EXPECT_EQ(rows[1].task + rows[1].metric, "zero_shottop5");
  EXPECT_EQ(rows[2].task + rows[2].metric, "knntop1");
}

TEST_F(ComparisonTest, ShowsOnlySettingsThatDiffer) {
  const auto runs =
      read_compared_runs({run("a", "optimizer: {lr: 0.1, betas: [1, 2]}\nobjective: {name: clip}\n", "{}"),
                          run("b",
                              "optimizer: {lr: 0.2, betas: [1, 2]}\n"
                              "objective: {name: sparc, threshold: null}\n",
                              "{}")});
  const std::vector<SettingRow> rows = differing_settings(runs);
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0].key, "optimizer.lr");
  EXPECT_EQ(rows[0].values, (std::vector<std::optional<std::string>>{"0.1", "0.2"}));
  EXPECT_EQ(rows[1].key, "objective.name");
  EXPECT_EQ(rows[2].key, "objective.threshold");
  EXPECT_EQ(rows[2].values, (std::vector<std::optional<std::string>>{std::nullopt, "null"}));
  EXPECT_EQ(page_data(comparison_page(runs)).at("settings").at(1).dump(), R"({"key":"objective.name","values":["clip","sparc"]})");
}

TEST_F(ComparisonTest, PageHasTheCurvesAndFactsOfAllRuns) {
  const auto runs =
      read_compared_runs({run("a<b", "seed: 1\n", R"({"top1":0.5})"), run("b", "seed: 2\n", R"({"top1":0.25})")});
  const std::string html = comparison_page(runs);
  expect_self_contained(html);
  EXPECT_EQ(html.find("a<b"), std::string::npos) << "no text of a run may be read as an element";
  const nlohmann::json data = page_data(html), first = data.at("runs").at(0);
  EXPECT_EQ(data.at("title"), "Comparison of 2 runs");
  EXPECT_EQ(first.at("name"), "a<b");
  EXPECT_EQ(first.at("version"), "Tessera 1.2.3 (abc)");
  const nlohmann::json &values = first.at("curves").at("values"), &steps = first.at("curves").at("steps");
  for (const char* curve : {"loss", "lr", "samples_per_second", "terms.a"}) EXPECT_EQ(values.at(curve).at("y").size(), 2u) << curve;
  const auto x_of = [&](const char* curve) { return steps.at(values.at(curve).at("steps").get<std::size_t>()).dump(); };
  EXPECT_EQ(x_of("loss"), "[1,2]");
  EXPECT_EQ(x_of("loss_by_minutes"), "[1,2]");
  EXPECT_EQ(x_of("loss_by_samples"), "[8,16]");
  EXPECT_EQ(data.at("percent").at(0), "zero_shot.top1");
  EXPECT_EQ(data.at("scores").at(0).at("best").dump(), "[true,false]");
  EXPECT_EQ(data.at("scores").at(0).at("better"), "higher");
}

TEST_F(ComparisonTest, RulesComeFromTheResults) {
  const std::string folder = path("m");
  write("m/results.json", R"({"tasks":[{"task":"own","data":"d","metrics":{"top_speed":2},"rule":"top_speed: in seconds.",
      "rules":{"top_speed":{"better":"lower","percent":false}}}]})");
  const nlohmann::json score = comparison_json(read_compared_runs({folder})).at("scores").at(0);
  EXPECT_EQ(score.at("better"), "lower");
  EXPECT_EQ(score.at("percent"), false);
  EXPECT_EQ(score.at("rule"), "top_speed: in seconds.");
}

TEST_F(ComparisonTest, NumbersOfANewerCheckpointReplaceOlderNumbers) {
  const std::string folder = run("a", "", R"({"top1":0.5,"top3":0.75})");
  const auto results = [&](int step) {
    write("a/evaluation/results.json",
          concat(R"({"step":)", step, R"(,"tasks":[{"task":"zero_shot","data":"d","metrics":{"top1":0.625}}]})"));
    return row_of(read_compared_runs({folder}), "top1").values;
  };
  EXPECT_EQ(results(1), std::vector<std::optional<double>>{0.5});
  EXPECT_EQ(results(2), std::vector<std::optional<double>>{0.625});
  EXPECT_EQ(row_of(read_compared_runs({folder}), "top3").values, std::vector<std::optional<double>>{0.75});
}

TEST_F(ComparisonTest, UsesTheNewestEvaluationOfAModel) {
  for (const auto& [folder, top1] : {std::pair("", 0.25), std::pair("-2", 0.5), std::pair("-3", 0.75)})
    write(concat("m/evaluation", folder, "/results.json"),
          concat(R"({"step":5,"tasks":[{"task":"zero_shot","data":"d","metrics":{"top1":)", top1, "}}]}"));
  EXPECT_EQ(row_of(read_compared_runs({path("m")}), "top1").values, std::vector<std::optional<double>>{0.75});
  const auto apart = read_compared_runs({path("m/evaluation"), path("m/evaluation-2")});
  EXPECT_EQ(apart[0].name, "m");
  EXPECT_EQ(apart[1].name, "m/evaluation-2");
  write("m/evaluation/results.json",
        R"({"date":"2026-11-26T18:00:00Z","step":5,"tasks":[{"task":"zero_shot","data":"d","metrics":{"top1":0.125}}]})");
  EXPECT_EQ(row_of(read_compared_runs({path("m")}), "top1").values, std::vector<std::optional<double>>{0.125}) << "--overwrite";
}

TEST_F(ComparisonTest, ComparesModelsWithOnlyEvaluations) {
  write("m/evaluation/results.json",
        R"({"version":"1.0","commit":"abc","tasks":[{"task":"zero_shot","data":"d","metrics":{"top1":null}},
            {"task":"zero_shot","data":"d","metrics":{"top1":0.5}}]})");
  write("n/results.json", R"({"step":7,"tasks":[{"task":"zero_shot","data":"d","metrics":{"top1":0.25}}]})");
  const auto runs = read_compared_runs({path("m/evaluation"), path("n")});
  EXPECT_EQ(runs[0].name, "m");
  EXPECT_EQ(runs[1].name, "n");
  EXPECT_EQ(runs[1].step, 7);
  EXPECT_EQ(runs[0].version, "Tessera 1.0 (abc)");
  const auto rows = score_rows(runs);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[1].task, "zero_shot_2");
  EXPECT_EQ(score_text(rows[0], 0), "NaN");
  EXPECT_EQ(score_text(rows[1], 1), "-");
  EXPECT_EQ(comparison_json(runs).at("scores").at(1).at("values").dump(), "[0.5,null]");
}

/// Writes an evaluation of `samples` samples. The first `right` samples are right, and the others are wrong.
void write_evaluation(const std::string& folder, int right, int samples, const std::string& mark, int step = 5) {
  std::vector<double> values(static_cast<std::size_t>(samples), 0);
  std::fill_n(values.begin(), right, 1.0);
  const TaskOutcomes task{"zero_shot", "d", mark, samples, {mean_outcomes("top1", values)}};
  const Interval interval = compute_intervals(task).at("top1");
  io::write_file(folder + "/samples.json", to_json({task}).dump());
  io::write_file(folder + "/results.json",
                 concat(R"({"step":)", step, R"(,"tasks":[{"task":"zero_shot","data":"d","metrics":{"top1":)", double(right) / samples,
                        R"(},"intervals":{"top1":[)", interval.low, ",", interval.high, "]}}]}"));
}

TEST_F(ComparisonTest, TestsDifferencesOnTheSameSamples) {
  write_evaluation(path("a"), 60, 100, "m");
  write_evaluation(path("b"), 59, 100, "m");
  write_evaluation(path("c"), 30, 100, "m");
  const auto runs = read_compared_runs({path("a"), path("b"), path("c")});
  const ScoreRow row = row_of(runs, "top1");
  ASSERT_EQ(row.differences.size(), 3u);
  EXPECT_NEAR(row.differences[1].value, 0.3, 1e-12);
  EXPECT_FALSE(row.differences[0].beyond_chance()) << "one sample in a hundred is within chance";
  EXPECT_TRUE(row.differences[1].beyond_chance());
  EXPECT_TRUE(row.differences[2].beyond_chance());
  EXPECT_FALSE(is_like_best(row, 0)) << "it is the best";
  EXPECT_TRUE(is_like_best(row, 1));
  EXPECT_FALSE(is_like_best(row, 2));
  const std::string table = comparison_markdown(runs);
  EXPECT_TRUE(std::regex_search(table, std::regex(R"(\*\*60\.00%\*\* \[5\d\.\d, \d+\.\d\] )"))) << table;
  EXPECT_TRUE(std::regex_search(table, std::regex(R"(59\.00% \[[0-9., ]+\] =)"))) << table;
  const auto json = comparison_json(runs).at("scores").at(0);
  EXPECT_EQ(json.at("differences").at(1).at("second"), "c");
  EXPECT_EQ(json.at("differences").at(1).at("beyond_chance"), true);
  EXPECT_EQ(json.at("intervals").at(0).size(), 2u);
  EXPECT_EQ(page_data(comparison_page(runs)).at("scores").at(0).at("like_best").dump(), "[false,true,false]");
}

TEST_F(ComparisonTest, DoesNotPairDifferentSamples) {
  write_evaluation(path("a"), 60, 100, "m");
  write_evaluation(path("b"), 30, 100, "n");
  write_evaluation(path("c"), 30, 90, "m");
  const ScoreRow row = row_of(read_compared_runs({path("a"), path("b"), path("c")}), "top1");
  EXPECT_TRUE(row.differences.empty());
  EXPECT_TRUE(row.intervals[2]) << "each still has an interval";
}

TEST_F(ComparisonTest, MeasuredModelsCombineTheirEvaluationWithTheCurvesOfTheirRun) {
  const std::string a = run("a", "seed: 1\n", R"({"top5":0.5})");
  write_evaluation(path("a/evaluation"), 10, 100, "m");
  write_evaluation(path("a/evaluation-2"), 20, 100, "m");
  write("b.safetensors", "");
  write_evaluation(path("evaluation"), 30, 100, "m", 9);
  const auto runs =
      read_measured_models({{a, path("a/evaluation")}, {path("b.safetensors"), path("evaluation")}});
  EXPECT_EQ(runs[0].name, "a");
  EXPECT_EQ(runs[1].name, "b");
  const auto rows = score_rows(runs);
  ASSERT_EQ(rows.size(), 1u) << "numbers of the training run's own evaluation are left out";
  EXPECT_EQ(rows[0].values, (std::vector<std::optional<double>>{0.1, 0.3}));
  EXPECT_EQ(rows[0].best, (std::vector<bool>{false, false})) << "they were trained for different numbers of steps";
  EXPECT_EQ(runs[1].step, 9);
  EXPECT_NE(runs[0].curves.last("loss"), nullptr);
  EXPECT_FALSE(runs[0].settings.empty());
}

TEST_F(ComparisonTest, TasksOfOneNameOnDifferentDataHaveSeparateCurves) {
  const std::string a = run("a", "", "{}");
  write("a/evaluation/step_00000002.json",
        R"({"step":2,"results":[{"task":"zero_shot","name":"zero_shot","data":"d","metrics":{"top1":0.25}},)"
        R"({"task":"zero_shot","name":"zero_shot_2","data":"e","metrics":{"top1":0.75}}]})");
  const auto runs = read_compared_runs({a});
  ASSERT_NE(runs[0].curves.last("evaluation.zero_shot_2.top1"), nullptr);
  EXPECT_EQ(*runs[0].curves.last("evaluation.zero_shot.top1"), 0.25);
  EXPECT_EQ(*runs[0].curves.last("evaluation.zero_shot_2.top1"), 0.75);
}

TEST_F(ComparisonTest, DistinguishesRunsOfOneNameByTheirFolders) {
  const auto runs = read_compared_runs({run("x/one/run", "", "{}"), run("y/one/run", "", "{}"), run("other", "", "{}"),
                                        run("x/two/run", "", "{}") + "/"});
  EXPECT_EQ(runs[0].name, "x/one/run");
  EXPECT_EQ(runs[1].name, "y/one/run");
  EXPECT_EQ(runs[2].name, "other");
  EXPECT_EQ(runs[3].name, "two/run");
}

TEST_F(ComparisonTest, ErrorForAFolderThatIsNotARunNamesTheRunsInIt) {
  run("stages/first", "", "{}");
  EXPECT_EQ(comparing_error({path("stages")}),
            path("stages") + ": is neither a run nor an evaluation: it holds neither metrics.jsonl nor results.json; its "
                             "subfolders that do: " + path("stages/first"));
  EXPECT_EQ(comparing_error({path("nowhere")}), path("nowhere") + ": there is no such folder");
  const std::string a = run("a", "", "{}");
  EXPECT_EQ(comparing_error({a, a + "/"}), a + "/: this run is given twice");
  write("b/results.json", "{");
  EXPECT_EQ(comparing_error({path("b")}),
            path("b/results.json") + ": is not a JSON object, so the results in it cannot be compared");
}

}  // namespace
}  // namespace tessera::report
