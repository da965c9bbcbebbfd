#include <cstring>
#include <fstream>
#include <limits>
#include <set>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "src/training/log/run_log.h"
#include "src/training/trainer.h"
#include "tests/support/full_disk.h"
#include "tests/support/page_data.h"
#include "tests/training/tiny_run.h"
#include <tessera/base/text.h>
#include <tessera/base/version.h>
#include <tessera/io/atomic_file.h>

namespace tessera {
namespace {

namespace fs = std::filesystem;

MetricsRow some_record() {
  MetricsRow record;
  record.step = 7;
  record.loss = 1.25;
  record.terms = {{"loss_clip", 1.0}, {"loss_local", 0.25}};
  record.grad_norms = {{"image", 3}, {"text", 4}};
  record.samples_per_second = 1042.4;
  record.tflops = 0.31;
  record.mfu = 0.314;
  record.wait_share = 0.34;
  record.resident = 1 << 30;
  return record;
}

TEST(MetricsRow, StatusShowsSpeedAndNotableWaiting) {
  MetricsRow record = some_record();
  EXPECT_EQ(
      status_text(record),
      "loss 1.2500  loss_clip 1.0000  loss_local 0.2500  1042 samples/s  310 GFLOP/s (31% MFU)  waits for data 34%");
  record.terms.clear();
  record.wait_share = 0.05;
  record.tflops = record.mfu = std::nullopt;
  EXPECT_EQ(status_text(record), "loss 1.2500  1042 samples/s");
  EXPECT_EQ(format_flop_rate(412.3), "412 TFLOP/s");
  EXPECT_EQ(format_flop_rate(1.26), "1.3 TFLOP/s");
}

// In the first two steps, rank 2 comes last; in the third, rank 0 does. The transfer itself takes 1, 1 and 2 seconds.
TEST(MetricsRow, NamesTheRankForWhichTheOthersWait) {
  const at::Tensor waited = at::tensor({4., 3., 2., 3., 3., 3., 1., 1., 5.}, at::kDouble).view({3, 3});
  const at::Tensor nothing = at::zeros({3, 3}, at::kDouble);
  const SlowestRank slowest = slowest_rank(waited, nothing);
  EXPECT_EQ(slowest.rank, 2);
  EXPECT_DOUBLE_EQ(slowest.seconds, (5 + 4 + 4) / 3.0);
  EXPECT_DOUBLE_EQ(slowest.of_waiting, 9 / 13.0);
  EXPECT_EQ(slowest_rank(at::ones({3, 2}, at::kDouble), at::zeros({3, 2}, at::kDouble)).seconds, 0) << "nobody waits for another one";
  EXPECT_EQ(slowest_rank(at::ones({3, 0}, at::kDouble), at::zeros({3, 0}, at::kDouble)).of_waiting, 0);

  // The device of rank 1 needs the longest for its forward passes, and the hosts do not wait.
  const at::Tensor computed = at::tensor({1., 1., 1., 2., 3., 1., 1., 2., 1.5}, at::kDouble).view({3, 3});
  const SlowestRank device = slowest_rank(nothing, computed);
  EXPECT_EQ(device.rank, 1);
  EXPECT_DOUBLE_EQ(device.seconds, (2 + 3 + 1) / 3.0);
  EXPECT_DOUBLE_EQ(device.of_waiting, 5 / 6.0);

  MetricsRow record = some_record();
  record.wait_share = 0;
  EXPECT_FALSE(to_json(record).contains("ranks")) << "there is only one";
  record.slowest = {.rank = 3, .host = "node7", .seconds = 1, .of_waiting = 0.83};
  record.rank_wait_share = 0.12;
  EXPECT_TRUE(status_text(record).ends_with("(31% MFU)  ranks wait 12%, 83% of it for rank 3 on node7"));
  EXPECT_EQ(to_json(record)["ranks"].dump(), R"({"wait_share":0.12,"slowest":3,"host":"node7","of_waiting":0.83})");
  record.rank_wait_share = 0.08;
  EXPECT_TRUE(status_text(record).ends_with("(31% MFU)"));
}

TEST(MetricsRow, RowsAreJsonEvenWithNonFiniteNumbers) {
  MetricsRow record = some_record();
  record.loss = std::numeric_limits<double>::quiet_NaN();
  EXPECT_FALSE(to_json(record).contains("cut")) << "only finished epochs report it";
  record.cut = {{"tokens.caption", 0.25}};
  const nlohmann::json row = to_json(record);
  EXPECT_TRUE(row["loss"].is_null());
  EXPECT_EQ(row["cut"], (nlohmann::json{{"tokens.caption", 0.25}}));
  EXPECT_EQ(row["grad_norms"], (nlohmann::json{{"image", 3.0}, {"text", 4.0}}));
  EXPECT_EQ(row["mfu"], 0.314);
  EXPECT_EQ(row["memory"]["resident"], 1 << 30);
  EXPECT_TRUE(row["memory"]["device_peak"].is_null());
}

TEST(MetricsRow, TensorBoardHasTheNumbersOfTheRow) {
  MetricsRow record = some_record();
  record.cut = {{"tokens.caption", 0.25}};
  const auto scalars = scalars_of(to_json(record));
  const std::map<std::string, double> values(scalars.begin(), scalars.end());
  EXPECT_EQ(values.at("loss/total"), 1.25);
  EXPECT_EQ(values.at("loss/loss_local"), 0.25);
  EXPECT_EQ(values.at("optimizer/grad_norm_text"), 4);
  EXPECT_EQ(values.at("cut/tokens.caption"), 0.25);
  EXPECT_EQ(values.at("memory/resident_gib"), 1);
  EXPECT_FALSE(values.contains("memory/device_peak_gib")) << "unknown numbers are left out";
  EXPECT_FALSE(values.contains("model/logit_scale"));
  const auto evaluated = scalars_of(to_json(RowPlace{.step = 7}, {{"knn.top1", 0.5}}));
  EXPECT_EQ(evaluated, (std::vector<std::pair<std::string, double>>{{"evaluation/knn.top1", 0.5}}));
}

std::string page_of(RunPage& page, const std::string& state = "running") {
  RunStatus status{.state = state, .step = 300, .total_steps = 1000};
  status.samples = 30000;
  status.seconds_left = 125;
  status.skipped = {{"bad <image>", 3}};
  return page.html(status);
}

/// Returns the data of the page.
nlohmann::json data_of(RunPage& page, const std::string& state = "running") {
  return page_data(page_of(page, state));
}

/// Returns a task's result as step_N.json has it.
nlohmann::json result_of(const std::string& task, const nlohmann::json& metrics) {
  return {{"task", task}, {"name", task}, {"metrics", metrics}};
}

/// Returns what the page says about a metric, "task.metric".
nlohmann::json evaluated_in(const nlohmann::json& data, const std::string& name) {
  for (const auto& each : data.at("evaluated"))
    if (each.at("name") == name) return each;
  return {};
}

using RunPageTest = RunTest;

TEST_F(RunPageTest, HidesSkippedSamplesAndSortsMetricsByTheirNumbers) {
  std::ofstream(folder_ / "log.txt") << "10:00:00 warning skipped: a.jpg: no such file (no_image)\n"
                                        "10:00:01 warning csv x, 9 samples: further skipped samples are only counted\n"
                                        "10:00:02 warning something else\n";
  RunPage page(folder_.path(), "run", {});
  page.add_result(200, result_of("r", {{"recall@1", 0.1}, {"recall@5", 0.5}, {"recall@10", 0.7}}));
  const nlohmann::json data = data_of(page, "interrupted");
  EXPECT_EQ(data.at("status").at("state"), "interrupted");
  EXPECT_EQ(data.at("warnings").dump(), R"(["10:00:02 warning something else"])");
  EXPECT_EQ(data.at("evaluated").at(1).at("name"), "r.recall@5");
  EXPECT_EQ(data.at("evaluated").at(2).at("name"), "r.recall@10");
}

TEST_F(RunPageTest, IsOnePageWithoutOutsideFiles) {
  fs::create_directories(folder_ / "checkpoints/step_0000200");
  std::ofstream(folder_ / "checkpoints/step_0000200/manifest.json") << "{}";
  std::ofstream(folder_ / "log.txt") << "10:00:00 info all is well\n10:00:01 warning a </script><b> is odd\n";
  RunPage page(folder_.path(), "my <run>", {{"Objective", "clip"}});
  for (int step = 1; step <= 300; ++step) {
    MetricsRow record = some_record();
    record.step = step;
    page.add_row(to_json(record));
  }
  page.add_result(200, result_of("zero_shot", {{"top1", 0.5}}));
  page.add_result(300, result_of("zero_shot", {{"top1", 0.25}}));
  const std::string html = page_of(page);
  expect_self_contained(html);
  EXPECT_TRUE(contains(html, "prefers-color-scheme:dark"));
  EXPECT_FALSE(contains(html, "a </script>")) << "no text may end the script that holds the data";
  const nlohmann::json data = page_data(html);
  EXPECT_EQ(data.at("kind"), "run");
  EXPECT_EQ(data.at("title"), "my <run>");
  EXPECT_EQ(data.at("status").at("step"), 300);
  EXPECT_EQ(data.at("status").at("seconds_left"), 125);
  EXPECT_EQ(data.at("status").at("skipped").dump(), R"({"bad <image>":3})");
  EXPECT_EQ(data.at("facts").dump(), R"([["Objective","clip"]])");
  EXPECT_EQ(data.at("warnings").dump(), R"(["10:00:01 warning a </script><b> is odd"])");
  EXPECT_EQ(data.at("checkpoints").dump(), R"([{"files":["manifest.json"],"name":"step_0000200"}])");
  const nlohmann::json& curves = data.at("curves");
  const nlohmann::json& norm = curves.at("values").at("grad_norms.text");
  EXPECT_EQ(norm.at("y"), nlohmann::json(std::vector<int>(300, 4)));
  EXPECT_EQ(curves.at("steps").at(norm.at("steps").get<std::size_t>()).at(299), 300);
  EXPECT_EQ(curves.at("steps").size(), 2U) << "all rows have the same steps, and the evaluations theirs";
}

TEST_F(RunPageTest, StaysSmallForLongRuns) {
  RunPage page(folder_.path(), "run", {});
  nlohmann::json row = to_json(some_record());
  for (int step = 1; step <= 5'000; ++step) {
    row["step"] = step;
    row["loss"] = step % 7;
    page.add_row(row);
  }
  EXPECT_LT(page_of(page).size(), 1'500'000u);
  EXPECT_TRUE(data_of(page).at("curves").at("values").at("loss").contains("high")) << "the range of the averaged values";
  EXPECT_LT(page_of(page).size() - data_of(page).dump().size(), 250'000u) << "the template with its script and the plotting library";
}

TEST_F(RunPageTest, ShowsTheLowestLossAsBest) {
  RunPage page(folder_.path(), "run", {});
  page.add_result(100, result_of("validation_loss", {{"loss", 0.5}}));
  nlohmann::json worse = result_of("validation_loss", {{"loss", 0.75}});
  page.add_result(200, worse);
  page.add_result(200, result_of("knn", {{"l2", 3}}));
  const nlohmann::json data = data_of(page), loss = evaluated_in(data, "validation_loss.loss");
  EXPECT_EQ(loss.at("last").dump(), R"({"step":200,"value":0.75})");
  EXPECT_EQ(loss.at("best").dump(), R"({"step":100,"value":0.5})");
  EXPECT_FALSE(evaluated_in(data, "knn.l2").contains("best"));
  EXPECT_EQ(data.at("curves").at("values").at("evaluation.validation_loss.loss").at("y").dump(), "[0.5,0.75]");
}

TEST_F(RunPageTest, UsesTheRulesOfTheTaskWhereItStatesThem) {
  RunPage page(folder_.path(), "run", {});
  nlohmann::json result = result_of("own", {{"top_speed", 3}});
  result["rules"]["top_speed"] = {{"better", "lower"}, {"percent", false}};
  page.add_result(100, result);
  page.add_result(100, result_of("older", {{"top1", 0.5}}));
  EXPECT_EQ(evaluated_in(data_of(page), "own.top_speed").at("better"), "lower");
  EXPECT_EQ(evaluated_in(data_of(page), "own.top_speed").at("percent"), false);
  EXPECT_EQ(evaluated_in(data_of(page), "older.top1").at("percent"), true) << "files of older versions state no rules";
}

TEST_F(RunPageTest, NamesEvaluationData) {
  RunPage page(folder_.path(), "run", {});
  nlohmann::json result = result_of("knn", {{"top1", 0.25}});
  result.update({{"data", "a test, 500 samples"}, {"samples", 200}});
  page.add_result(100, result);
  EXPECT_EQ(data_of(page).at("evaluated_data").dump(), R"({"knn":"a test, 500 samples, 200 images"})");
}

TEST_F(RunPageTest, ReadsBackEvaluationsUpToTheResumedStep) {
  fs::create_directories(folder_ / "evaluation");
  const auto write = [&](const std::string& name, const std::string& text) {
    std::ofstream(folder_ / "evaluation" + ("/" + name)) << text;
  };
  write("step_0000050.json", R"({"step": 50, "tasks": [{"task": "zero_shot", "metrics": {"top1": 0.0625}}]})");
  write("step_0000100.json", R"({"step": 100, "results": [{"task": "zero_shot", "metrics": {"top1": 0.125}}]})");
  write("step_0000200.json", R"({"step": 200, "tasks": [{"task": "zero_shot", "metrics": {"top1": 0.875}}]})");
  write("step_0000150.json", "torn");
  RunPage page(folder_.path(), "run", {});
  page.resume_at(150);
  const nlohmann::json top1 = evaluated_in(data_of(page), "zero_shot.top1");
  EXPECT_EQ(top1.at("last").at("value"), 0.125) << "a step after 150 was lost";
  EXPECT_EQ(top1.at("last").at("file"), "evaluation/step_0000100.json");
  EXPECT_EQ(data_of(page).at("curves").at("values").at("evaluation.zero_shot.top1").at("y").dump(), "[0.0625,0.125]");
}

TEST_F(RunPageTest, ShowsReadingsAtStepsSpreadOverTheRun) {
  fs::create_directories(folder_ / "evaluation");
  RunPage page(folder_.path(), "run", {});
  EXPECT_TRUE(data_of(page).at("readings").empty());
  std::ofstream(folder_ / "evaluation/step_0000001.json")
      << R"({"step": 1, "results": [{"task": "tokens", "readings": {"a <red> ring": "blue 0.5", "a box": [{"name": "lid", "score": 0.5}]}}]})";
  page.resume_at(50);
  for (std::int64_t step = 100; step <= 2000; step += 100)
    page.add_result(step, {{"task", "tokens"}, {"readings", {{"a <red> ring", "red " + std::to_string(step)}}}});
  const nlohmann::json readings = data_of(page).at("readings");
  EXPECT_EQ(readings.at("a box").dump(), R"([[1,"lid 0.500"]])");
  const nlohmann::json& ring = readings.at("a <red> ring");
  ASSERT_EQ(ring.size(), 6u);
  EXPECT_EQ(ring.front().dump(), R"([1,"blue 0.5"])");
  EXPECT_EQ(ring.back().dump(), R"([2000,"red 2000"])");
  for (std::size_t i = 1; i < ring.size(); ++i) EXPECT_LE(ring[i][0].get<int>() - ring[i - 1][0].get<int>(), 1000);
}

using RunLogTest = RunTest;

// Returns the number of events in the only event file of a folder, and checks that all of them are complete.
std::size_t events_in(const std::string& folder) {
  const std::string file = io::read_file(fs::directory_iterator(folder)->path().string());
  std::size_t count = 0, at = 0;
  for (std::uint64_t length = 0; at + sizeof length <= file.size(); ++count) {
    std::memcpy(&length, file.data() + at, sizeof length);
    at += length + 16;  // the length, two checksums of 4 bytes, and the event
  }
  EXPECT_EQ(at, file.size());
  return count;
}

TEST_F(RunLogTest, RowsAfterAFullDiskAreComplete) {
  RunLog log(folder_.path(), 60, {});
  log.resume_at(0, "run", {});
  MetricsRow row = some_record();
  ::testing::internal::CaptureStderr();
  {
    const FullDisk full(1 << 14);
    for (row.step = 1; row.step < 60; ++row.step) log.record(row);
  }
  log.record(row);
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_TRUE(contains(said, ": cannot write: File too large; training continues without part of its log")) << said;
  const auto kept = rows(folder_.path());
  EXPECT_LT(kept.size(), 60u);
  EXPECT_EQ(kept.back()["step"], 60);
  EXPECT_LT(events_in(folder_ / "tensorboard"), 60u);
}

TEST_F(RunLogTest, EverySessionTellsTensorBoardToDropLaterSteps) {
  for (const std::int64_t first_step : {0, 7}) {
    const std::string folder = folder_ / std::to_string(first_step);
    { const EventFile file(folder, first_step); }
    EXPECT_EQ(events_in(folder), 2u) << "the version of the format, and the start of the session";
  }
}

TEST_F(RunLogTest, RowsHoldSpeedMemoryAndGradientNormsPerTower) {
  const std::string run = train("run", {"log.peak_tflops=0.5", "training.steps=3"});
  const auto rows = tessera::rows(run);
  ASSERT_EQ(rows.size(), 3u);
  for (const auto& row : rows) {
    EXPECT_GT(row["tflops"].get<double>(), 0);
    EXPECT_NEAR(row["mfu"].get<double>(), row["tflops"].get<double>() / 0.5, 1e-9);
    EXPECT_GT(row["memory"]["resident_peak"].get<double>(), 1e6);
    double squares = 0;
    std::set<std::string> towers;
    for (const auto& [name, norm] : row["grad_norms"].items()) {
      towers.insert(name);
      squares += norm.get<double>() * norm.get<double>();
    }
    EXPECT_EQ(towers, (std::set<std::string>{"image", "text", "objective"}));
    EXPECT_NEAR(std::sqrt(squares), row["grad_norm"].get<double>(), 1e-5);
  }
  const nlohmann::json data = page_data(io::read_file(run + "/run.html"));
  const std::string log = io::read_file(run + "/log.txt");
  EXPECT_EQ(data.at("status").at("state"), "finished");
  EXPECT_EQ(data.at("checkpoints").at(0).at("name"), "step_0000003");
  EXPECT_EQ(data.at("checkpoints").at(0).at("files").at(0), "model.safetensors");
  EXPECT_TRUE(contains(log, "; MFU is relative to 500 GFLOP/s (log.peak_tflops)"));
}

TEST_F(RunLogTest, RecordsTheVersion) {
  const std::string run = train("run", {"training.steps=1", "schedule.warmup_steps=0"});
  const std::string log = io::read_file(run + "/log.txt");
  EXPECT_TRUE(contains(log.substr(0, log.find('\n')), version_line())) << log;
  EXPECT_TRUE(io::read_file(run + "/config.yaml").starts_with("# " + version_line() + "\n"));
  EXPECT_TRUE(contains(io::read_file(run + "/run.html"), version_line()));
}

TEST_F(RunLogTest, FrozenTowerHasNoGradientNorm) {
  const auto norms = rows(train("run", {"parameters.frozen=[image]", "training.steps=2"})).at(0)["grad_norms"];
  EXPECT_FALSE(norms.contains("image"));
  EXPECT_TRUE(norms.contains("text"));
}

// The model FLOPs per sample must not include operations that are computed a second time.
TEST_F(RunLogTest, ModelFlopsExcludeRecomputation) {
  const auto flops_per_sample = [&](const std::string& name, std::vector<std::string> overrides) {
    overrides.insert(overrides.end(), {"log.peak_tflops=1", "training.steps=2"});
    const auto row = rows(train(name, overrides)).at(0);
    return 1e12 * row["tflops"].get<double>() / row["samples_per_second"].get<double>();
  };
  const double plain = flops_per_sample("plain", {});
  EXPECT_GT(plain, 1e5);
  EXPECT_NEAR(flops_per_sample("accumulated", {"training.accumulation=2"}), plain, 1e-6 * plain);
  EXPECT_NEAR(flops_per_sample("checkpointed", {"model.image.encoder.grad_checkpointing=true",
                                                "model.text.encoder.grad_checkpointing=true"}),
              plain, 1e-6 * plain);
  EXPECT_NEAR(flops_per_sample("cached", {"training.micro_batch=2"}), plain, 1e-6 * plain);
}

TEST_F(RunLogTest, PageOfAResumedRunShowsTheEarlierSteps) {
  const std::string run = train("run", {"log.page=false"});
  EXPECT_FALSE(fs::exists(run + "/run.html"));
  fs::remove_all(run + "/checkpoints/step_0000006");
  Trainer(tiny_config(run), "auto").run();
  const nlohmann::json curves = page_data(io::read_file(run + "/run.html")).at("curves");
  EXPECT_EQ(curves.at("values").at("loss").at("y").size(), 6u) << "one point per step";
}

TEST_F(RunLogTest, PageShowsTheLossOfGuessingAndWhereSettingsChanged) {
  const std::string run = train("run", {"training.steps=3"});
  const nlohmann::json first = page_data(io::read_file(run + "/run.html"));
  EXPECT_FALSE(first.at("chance").empty());
  EXPECT_TRUE(first.at("marks").empty());
  train("run", {"optimizer.lr=0.02"}, {"auto", {"optimizer.lr"}});
  EXPECT_EQ(page_data(io::read_file(run + "/run.html")).at("marks").size(), 1u);
}

TEST_F(RunLogTest, PageOfAFailedRunShowsWhy) {
  const std::string run = folder_ / "run";
  Trainer(tiny_config(run, {"objective.from=4"}, "test_not_finite"), "none").run();
  const nlohmann::json data = page_data(io::read_file(run + "/run.html"));
  EXPECT_EQ(data.at("status").at("state"), "not finite");
  EXPECT_FALSE(data.at("status").at("good").get<bool>());
  EXPECT_TRUE(contains(data.at("warnings").dump(), "step 5: not finite: loss nan")) << "the last warnings name it";
}

TEST(Profiler, WritesAChromeTraceOfTheRequestedSteps) {
  const TemporaryFolder folder;
  const std::string run = folder / "run";
  Trainer(tiny_config(run, {"log.profile=[2, 3]", "training.steps=5"}), "none").run();
  const auto trace = nlohmann::json::parse(io::read_file(run + "/trace_step_0000002.json"));
  std::set<std::string> names;
  for (const auto& event : trace.at("traceEvents"))
    if (event.contains("name")) names.insert(event["name"].get<std::string>());
  for (const char* name : {"step 2", "step 3", "aten::addmm", "aten::_fused_adamw_"})
    EXPECT_TRUE(names.contains(name)) << name;
  EXPECT_FALSE(names.contains("step 1"));
  EXPECT_FALSE(names.contains("step 4"));
  EXPECT_TRUE(contains(io::read_file(run + "/log.txt"), "profiler trace: " + run + "/trace_step_0000002.json"));
}

TEST(Profiler, RejectsARangeThatEndsBeforeItStarts) {
  EXPECT_EQ(error_of([] { tiny_config("runs/x", {"log.profile=[12, 10]"}); }),
            "--set: log.profile: ends before it begins: expected [first step, last step]");
  EXPECT_NE(error_of([] { tiny_config("runs/x", {"log.profile=[0, 10]"}); }), "no error");
}

}  // namespace
}  // namespace tessera
