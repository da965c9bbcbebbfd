#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "src/training/log/metrics_table.h"
#include "src/training/trainer.h"
#include "tests/training/tiny_run.h"
#include <tessera/base/text.h>
#include <tessera/io/atomic_file.h>

namespace tessera {
namespace {

using nlohmann::ordered_json;

std::vector<std::vector<std::string>> cells_of(const std::string& path) {
  std::vector<std::vector<std::string>> out;
  for (const std::string& line : split(io::read_file(path), '\n'))
    if (!line.empty()) out.push_back(split(line, ','));
  return out;
}

TEST(MetricsTable, LeavesALaterColumnEmptyInEarlierLines) {
  const TemporaryFolder folder;
  MetricsTable table(folder / "metrics.csv");
  table.resume_at(0);
  table.add({{"step", 10}, {"loss", 2.5}, {"terms", {{"i2t", 1.5}}}, {"tflops", nullptr}});
  table.add({{"step", 20}, {"loss", 2.25}, {"terms", {{"i2t", 1.25}}}, {"warnings", {"one, two"}}});
  table.add({{"step", 20}, {"evaluation", {{"retrieval.r@1", 0.5}}}});
  table.add({{"step", 30}, {"loss", nullptr}, {"statistics", {{"a,\"b\"", 7}}}});
  EXPECT_EQ(io::read_file(folder / "metrics.csv"),
            "step,loss,terms.i2t,tflops,evaluation.retrieval.r@1,statistics.a__b_\n"
            "10,2.5,1.5,,,\n"
            "20,2.25,1.25,,0.5,\n"
            "30,,,,,7\n");
}

TEST(MetricsTable, LineHasTheTimeOfItsStepNotOfTheEvaluation) {
  const TemporaryFolder folder;
  MetricsTable table(folder / "metrics.csv");
  table.resume_at(0);
  table.add({{"step", 10}, {"time", "12:00:00"}, {"loss", 2}});
  table.add({{"step", 10}, {"time", "12:00:07"}, {"evaluation", {{"a", 0.5}}}});
  EXPECT_EQ(io::read_file(folder / "metrics.csv"), "step,time,loss,evaluation.a\n10,12:00:00,2,0.5\n");
}

TEST(MetricsTable, ResumesWithTheEarlierStepsAndColumns) {
  const TemporaryFolder folder;
  const std::string path = folder / "metrics.csv";
  MetricsTable first(path);
  first.resume_at(0);
  for (int step = 1; step <= 3; ++step) first.add({{"step", step}, {"loss", step}});
  std::ofstream(path, std::ios::app) << "4,";  // an incomplete line
  MetricsTable second(path);
  second.resume_at(2);
  second.add({{"step", 2}, {"evaluation", {{"a", 0.5}}}});
  second.add({{"step", 3}, {"loss", 30}});
  EXPECT_EQ(io::read_file(path), "step,loss,evaluation.a\n1,1,\n2,2,0.5\n3,30,\n");
}

TEST(MetricsTable, ANewRunKeepsNothingOfAnEarlierOneInItsFolder) {
  namespace fs = std::filesystem;
  const TemporaryFolder folder;
  const std::string run = folder / "run";
  const std::string tasks = "evaluation={every_steps: 2, at_start: true, tasks: [{name: retrieval, max_samples: 8}]}";
  Trainer(tiny_config(run, {tasks}), "none").run();
  io::write_file(run + "/changes.jsonl", R"({"step": 2, "key": "optimizer.lr", "before": "1", "now": "2"})");
  fs::remove_all(run + "/checkpoints");
  Trainer(tiny_config(run, {"training.steps=3"}), "auto").run();
  EXPECT_FALSE(contains(io::read_file(run + "/metrics.csv"), "retrieval"));
  EXPECT_EQ(rows(run).size(), 3u);
  EXPECT_TRUE(fs::is_empty(run + "/evaluation"));
  EXPECT_FALSE(contains(io::read_file(run + "/run.html"), "From step 2"));
  EXPECT_TRUE(contains(io::read_file(run + "/log.txt"), "--resume auto: no checkpoint in " + run + ", starting at step 0"));
}

TEST(MetricsTable, FailsIfTheFileCannotBeWritten) {
  const TemporaryFolder folder;
  MetricsTable table(folder / "none/metrics.csv");
  std::ofstream(folder / "none") << "a file where the folder should be";
  EXPECT_NE(error_of([&] { table.add({{"step", 1}}); }), "no error");
}

TEST(MetricsTable, RunWritesTimeEpochSamplesAndEvaluations) {
  const TemporaryFolder folder;
  const std::string run = folder / "run";
  Trainer(tiny_config(run, {"training.steps=4", "evaluation.tasks=[{name: retrieval, max_samples: 8}]"}), "none").run();
  const auto lines = cells_of(run + "/metrics.csv");
  ASSERT_EQ(lines.size(), 5u);
  const auto& header = lines.front();
  for (const auto& line : lines) EXPECT_EQ(line.size(), header.size());
  const auto cell = [&](std::size_t line, const std::string& name) {
    const auto found = std::find(header.begin(), header.end(), name);
    return found == header.end() ? "no column " + name : lines[line].at(found - header.begin());
  };
  const nlohmann::json row = rows(run).back();
  EXPECT_EQ(cell(4, "step"), "4");
  EXPECT_EQ(cell(4, "time"), row["time"].get<std::string>());
  EXPECT_EQ(cell(4, "time").size(), std::string("2026-11-23T12:34:56Z").size());
  EXPECT_EQ(cell(4, "samples"), row["samples"].dump());
  EXPECT_GT(row["samples"].get<int>(), rows(run).front()["samples"].get<int>());
  EXPECT_GT(row["epoch"].get<double>(), rows(run).front()["epoch"].get<double>());
  EXPECT_EQ(std::stod(cell(4, "loss")), row["loss"].get<double>());
  const auto is_evaluation = [](const std::string& name) { return name.starts_with("evaluation.retrieval."); };
  const auto evaluation = std::find_if(header.begin(), header.end(), is_evaluation);
  ASSERT_NE(evaluation, header.end());
  EXPECT_NE(cell(4, *evaluation), "");
  EXPECT_EQ(cell(3, *evaluation), "");
}

}  // namespace
}  // namespace tessera
