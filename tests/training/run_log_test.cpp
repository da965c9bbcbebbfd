#include <cstring>
#include <fstream>
#include <limits>
#include <regex>
#include <set>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "src/training/log/run_log.h"
#include "src/training/trainer.h"
#include "tests/support/full_disk.h"
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

TEST(MetricsRow, RowsAreJsonEvenWithNonFiniteNumbers) {
  MetricsRow record = some_record();
  record.loss = std::numeric_limits<double>::quiet_NaN();
  EXPECT_FALSE(nlohmann::json::parse(to_line(record)).contains("cut")) << "only finished epochs report it";
  record.cut = {{"tokens.caption", 0.25}};
  const auto row = nlohmann::json::parse(to_line(record));
  EXPECT_TRUE(row["loss"].is_null());
  EXPECT_EQ(row["cut"], (nlohmann::json{{"tokens.caption", 0.25}}));
  EXPECT_EQ(row["grad_norms"], (nlohmann::json{{"image", 3.0}, {"text", 4.0}}));
  EXPECT_EQ(row["mfu"], 0.314);
  EXPECT_EQ(row["memory"]["resident"], 1 << 30);
  EXPECT_TRUE(row["memory"]["device_peak"].is_null());
}

std::string page_of(RunPage& page, const std::string& state = "running") {
  RunStatus status{.state = state, .step = 300, .total_steps = 1000};
  status.samples = 30000;
  status.seconds_left = 125;
  status.skipped = {{"bad <image>", 3}};
  return page.html(status);
}

using RunPageTest = RunTest;

TEST_F(RunPageTest, MarksAnInterruptedRunAndHidesSkippedSamples) {
  std::ofstream(folder_ / "log.txt") << "10:00:00 warning skipped: a.jpg: no such file (no_image)\n"
                                        "10:00:01 warning csv x, 9 samples: further skipped samples are only counted\n"
                                        "10:00:02 warning something else\n";
  RunPage page(folder_.path(), "run", {});
  page.add_evaluation(200, {{"r.recall@1", 0.1}, {"r.recall@5", 0.5}, {"r.recall@10", 0.7}});
  const std::string html = page_of(page, "interrupted");
  EXPECT_TRUE(contains(html, "<span class=\"tag stopped\">interrupted"));
  EXPECT_TRUE(contains(page_of(page, "finished"), "<span class=\"tag good\">finished"));
  EXPECT_TRUE(contains(html, "something else"));
  EXPECT_FALSE(contains(html, "a.jpg"));
  EXPECT_FALSE(contains(html, "only counted"));
  EXPECT_LT(html.find("r.<wbr>recall<wbr>@5<"), html.find("r.<wbr>recall<wbr>@10<"));
}

TEST_F(RunPageTest, IsOnePageWithoutScriptsOrOutsideFiles) {
  fs::create_directories(folder_ / "checkpoints/step_0000200");
  std::ofstream(folder_ / "log.txt") << "10:00:00 info all is well\n10:00:01 warning a <b> is odd\n";
  RunPage page(folder_.path(), "my <run>", {{"Objective", "clip"}});
  for (int step = 1; step <= 300; ++step) {
    MetricsRow record = some_record();
    record.step = step;
    page.add_row(nlohmann::json::parse(to_line(record)));
  }
  page.add_evaluation(200, {{"zero_shot.top1", 0.5}});
  page.add_evaluation(300, {{"zero_shot.top1", 0.25}});
  const std::string html = page_of(page);
  for (const char* outside : {"http:", "https:", "<script", "<link", "url(", "src="})
    EXPECT_FALSE(contains(html, outside));
  for (const char* part : {"<h1>my &lt;run&gt;</h1>", "http-equiv=\"refresh\"", "step 300 of 1,000", "ETA 2m 05s",
                           "Gradient norm", "text tower", "MFU", "25.00%", "50.00%", "checkpoints/step_0000200/",
                           "10:00:01 warning a &lt;b&gt; is odd", "bad &lt;image&gt;", "prefers-color-scheme:dark"})
    EXPECT_TRUE(contains(html, part));
  EXPECT_FALSE(contains(html, "all is well"));
  std::map<std::string, int> open;
  const std::regex tag("<(/?)(div|table|tr|td|th|span|dl|dt|dd|main|body|head|style|h1|h2|h3|p|a|b|svg)\\b");
  for (std::sregex_iterator it(html.begin(), html.end(), tag), end; it != end; ++it)
    open[(*it)[2]] += (*it)[1].length() > 0 ? -1 : 1;
  for (const auto& [name, count] : open) EXPECT_EQ(count, 0) << name;

  const std::string ended = page_of(page, "finished");
  EXPECT_FALSE(contains(ended, "http-equiv")) << "nothing more will come";
  EXPECT_FALSE(contains(ended, "ETA"));
}

TEST_F(RunPageTest, StaysSmallForLongRuns) {
  RunPage page(folder_.path(), "run", {});
  auto row = nlohmann::json::parse(to_line(some_record()));
  for (int step = 1; step <= 5'000; ++step) {
    row["step"] = step;
    row["loss"] = step % 7;
    page.add_row(row);
  }
  EXPECT_LT(page_of(page).size(), 1'500'000u);
}

TEST_F(RunPageTest, ShowsTheLowestLossAsBestAndNoChartForOneValue) {
  RunPage page(folder_.path(), "run", {});
  page.add_evaluation(100, {{"validation_loss.loss", 0.5}});
  EXPECT_FALSE(contains(page_of(page), "<svg"));
  page.add_evaluation(200, {{"validation_loss.loss", 0.75}, {"knn.l2", 3}});
  const std::string html = page_of(page);
  EXPECT_TRUE(contains(html,
                       "validation_<wbr>loss.<wbr>loss</td><td class=\"n\">0.75<br><small class=\"soft\">step "
                       "200</small></td><td class=\"n\">0.5<br><small class=\"soft\">step 100</small></td>"));
  EXPECT_TRUE(contains(
      html, "knn.<wbr>l2</td><td class=\"n\">3<br><small class=\"soft\">step 200</small></td><td class=\"n\">-</td>"));
  EXPECT_TRUE(contains(html, "<svg"));
}

TEST_F(RunPageTest, NamesEvaluationDataAndShowsSharesAsPercent) {
  RunPage page(folder_.path(), "run", {});
  page.add_evaluation(100, {{"zero_shot.top1", 0.25}, {"knn.top1", 0.25}});
  page.add_evaluation(200, {{"zero_shot.top1", 0.5}, {"knn.top1", 0.5}});
  page.add_evaluation_data("zero_shot", "shapes validation, 500 samples");
  page.add_evaluation_data("knn", "a <b> test, 500 samples, 200 images");
  const std::string html = page_of(page);
  EXPECT_TRUE(contains(html, "zero_shot: shapes validation, 500 samples<"));
  EXPECT_TRUE(contains(html, "knn: a &lt;b&gt; test, 500 samples, 200 images;"));
  EXPECT_TRUE(contains(html, ">50%</text>"));
  EXPECT_FALSE(contains(html, ">0.5</text>"));
}

TEST_F(RunPageTest, ReadsBackEvaluationsUpToTheResumedStep) {
  fs::create_directories(folder_ / "evaluation");
  const auto write = [&](const std::string& name, const std::string& text) {
    std::ofstream(folder_ / "evaluation" + ("/" + name)) << text;
  };
  write("step_0000100.json", R"({"step": 100, "results": [{"task": "zero_shot", "metrics": {"top1": 0.125}}]})");
  write("step_0000200.json", R"({"step": 200, "results": [{"task": "zero_shot", "metrics": {"top1": 0.875}}]})");
  write("step_0000150.json", "torn");
  RunPage page(folder_.path(), "run", {});
  page.resume_at(150);
  const std::string html = page_of(page);
  EXPECT_TRUE(contains(html, "12.50%"));
  EXPECT_FALSE(contains(html, "87.50%")) << "from a step that was lost";
}

TEST_F(RunPageTest, ShowsReadingsAtStepsSpreadOverTheRun) {
  fs::create_directories(folder_ / "evaluation");
  RunPage page(folder_.path(), "run", {});
  EXPECT_FALSE(contains(page_of(page), "Samples during training"));
  std::ofstream(folder_ / "evaluation/step_0000001.json")
      << R"({"step": 1, "results": [{"task": "tokens", "readings": {"a <red> ring": "blue 0.5", "a box": [{"name": "lid", "score": 0.5}]}}]})";
  page.resume_at(50);
  for (std::int64_t step = 100; step <= 2000; step += 100)
    page.add_reading(step, "a <red> ring", "red " + std::to_string(step));
  const std::string html = page_of(page);
  for (const char* part : {"Samples during training", "<h3>a &lt;red&gt; ring</h3>", "blue 0.5", "red 2000", "lid 0.500"})
    EXPECT_TRUE(contains(html, part));
  std::vector<std::int64_t> steps;
  for (std::int64_t step = 100; step <= 2000; step += 100)
    if (html.find("<td>red " + std::to_string(step) + "</td>") != std::string::npos) steps.push_back(step);
  ASSERT_EQ(steps.size(), 5u) << "in addition to step 1";
  for (std::size_t i = 1; i < steps.size(); ++i) EXPECT_LE(steps[i] - steps[i - 1], 1000);
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
  const std::string html = io::read_file(run + "/run.html"), log = io::read_file(run + "/log.txt");
  EXPECT_TRUE(contains(html, ">finished</span>"));
  EXPECT_TRUE(contains(html, "checkpoints/step_0000003/model.safetensors"));
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
  const std::string html = io::read_file(run + "/run.html");
  std::smatch line;
  ASSERT_TRUE(std::regex_search(html, line, std::regex("aria-label=\"Loss\".*?points=\"([^\"]*)\"")));
  const std::string points = line[1];
  EXPECT_EQ(std::count(points.begin(), points.end(), ','), 6) << "one point per step: " << points;
}

TEST_F(RunLogTest, PageShowsTheLossOfGuessingAndWhereSettingsChanged) {
  const std::string run = train("run", {"training.steps=3"});
  EXPECT_TRUE(contains(io::read_file(run + "/run.html"), "</i>chance<"));
  EXPECT_FALSE(contains(io::read_file(run + "/run.html"), ">changed<"));
  train("run", {"optimizer.lr=0.02"}, {"auto", {"optimizer.lr"}});
  EXPECT_TRUE(contains(io::read_file(run + "/run.html"), ">changed<"));
}

TEST_F(RunLogTest, PageOfAFailedRunShowsWhy) {
  const std::string run = folder_ / "run";
  Trainer(tiny_config(run, {"objective.from=4"}, "test_not_finite"), "none").run();
  const std::string html = io::read_file(run + "/run.html");
  EXPECT_TRUE(contains(html, ">not finite</span>"));
  EXPECT_TRUE(contains(html, "step 5: not finite: loss nan")) << "the last warnings name it";
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
