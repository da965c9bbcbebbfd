#include <cmath>
#include <filesystem>
#include <set>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "src/report/cards.h"
#include "src/report/evaluation_page.h"
#include "src/report/page.h"
#include "tests/support/page_data.h"
#include "tests/support/temporary_folder.h"
#include <tessera/base/error.h>
#include <tessera/config/shipped.h>
#include <tessera/evaluation/task.h>

namespace tessera {
namespace {

using Better = MetricRule::Better;

Image grey(std::int64_t height, std::int64_t width) {
  return {height, width, std::vector<std::uint8_t>(static_cast<std::size_t>(3 * height * width), 100)};
}

config::Node settings_of(const std::string& yaml) {
  return config::parse_yaml(yaml, "settings");
}

TaskResult zero_shot() {
  TaskResult out{.task = "zero_shot", .data = "<data> & \"more\"", .settings = settings_of("{topk: [1]}"), .metrics = {}, .samples = 1234};
  out.rule = "top k: the share of images.";
  out.add_share("top1", 0.54321);
  out.add_number("log_loss", 2, Better::lower);
  out.skipped["bad_image"] = 2;
  return out;
}

nlohmann::json page_of(const TaskResult& result) {
  return page_data(report::evaluation_page({.title = "run"}, {result})).at("results").at(0);
}

TEST(Report, IsOneSelfContainedPage) {
  TaskResult result = zero_shot();
  result.add_card({{"type", "image"}, {"title", "a </script>"}, {"items", {{{"images", {report::image_part(grey(400, 300), "a.jpg")}}}}}});
  report::ReportHead head{.title = "a<b", .facts = {{"Parameters", "5"}}};
  head.curves.add(1, "loss", 0.5);
  const std::string html = report::evaluation_page(head, {result}, {{"knn", "no <train>"}});
  expect_self_contained(html);
  EXPECT_EQ(html.find("a </script>"), std::string::npos) << "no text may end the script that holds the data";
  const nlohmann::json data = page_data(html);
  EXPECT_EQ(data.at("kind"), "evaluation");
  EXPECT_EQ(data.at("title"), "a<b");
  EXPECT_EQ(data.at("facts").dump(), R"([["Parameters","5"]])");
  EXPECT_EQ(data.at("curves").dump(), R"({"steps":[[1]],"values":{"loss":{"steps":0,"y":[0.5]}}})");
  EXPECT_EQ(data.at("failed").at(0).at("reason"), "no <train>");
  const nlohmann::json& card = data.at("results").at(0).at("cards").at(0);
  EXPECT_EQ(card.at("title"), "a </script>");
  EXPECT_TRUE(card.at("items").at(0).at("images").at(0).at("src").get<std::string>().starts_with("data:image/jpeg;base64,"));
}

TEST(Report, HoldsTheResultAsItsFileSpellsItAndWhatOnlyThePageShows) {
  const TaskResult result = zero_shot();
  const nlohmann::json shown = page_of(result), file = to_json(result);
  for (const auto& [key, value] : file.items()) EXPECT_EQ(shown.at(key), value) << key;
  EXPECT_EQ(shown.at("metric_names").dump(), R"(["top1","log_loss"])") << "in the task's order";
  EXPECT_EQ(shown.at("data_text"), "<data> & \"more\", 1,234 images");
  EXPECT_FALSE(file.contains("cards")) << "images are not in results.json";
}

TEST(Report, SettingsShowTheDataFromTheCommandLine) {
  TaskResult result{.task = "knn", .data = "d", .settings = settings_of("{source: ~, train: {name: own}}"), .metrics = {}};
  report::ReportHead head{.title = "run",
                          .data = {{"source", settings_of("{name: given}")}, {"train", settings_of("{name: other}")}}};
  const std::string text = page_data(report::evaluation_page(head, {result})).at("results").at(0).at("settings_text");
  EXPECT_NE(text.find("name: given"), std::string::npos) << text;
  EXPECT_NE(text.find("name: own"), std::string::npos);
  EXPECT_EQ(text.find("name: other"), std::string::npos);
}

TEST(Report, EveryTaskExplainsItsNumbers) {
  std::set<std::string> unmade;
  for (const std::string& name : evaluation_tasks().names()) {
    try {
      EXPECT_TRUE(evaluation_tasks().make({name}, name)->rule().ends_with(".")) << name << " needs a rule()";
    } catch (const UserError&) {
      unmade.insert(name);  // needs settings
    }
  }
  EXPECT_EQ(unmade, std::set<std::string>{"query"});
  const auto query = evaluation_tasks().make({"query", settings_of("{texts: [a]}")}, "query");
  EXPECT_TRUE(query->rule().ends_with("."));
}

TEST(Report, ExplanationFollowsTheSettings) {
  const auto rule = [](const char* task, const char* yaml) { return evaluation_tasks().make({task, settings_of(yaml)}, task)->rule(); };
  EXPECT_NE(rule("segmentation", "{by: patches, candidates: present}").find("nearest to its patch, among the classes"), std::string::npos);
  EXPECT_NE(rule("segmentation", "{by: groups, candidates: all}")
                .find("nearest to its group, among all classes, the background included (candidates: all)."),
            std::string::npos);
  EXPECT_TRUE(rule("retrieval", "{similarity: topk, candidates: 4}").find(" The 4 texts nearest to an image's embedding") != std::string::npos);
}

TEST(Page, TemplateShipsWithTheConfigurations) {
  EXPECT_TRUE(std::filesystem::is_regular_file(config::shipped_folder() + "/page.html"));
  const std::string page = report::page({{"kind", "cards"}, {"title", "t"}, {"sections", nlohmann::json::array()}});
  EXPECT_EQ(page.find("@DATA@"), std::string::npos);
  EXPECT_EQ(page.find("@DYGRAPHS@"), std::string::npos);
  EXPECT_LT(page.size(), 250'000U);
}

TEST(Cards, ImagesArePngIfSmallAndJpegIfLarge) {
  const std::string uri = report::data_uri(grey(1, 1));
  EXPECT_TRUE(uri.starts_with("data:image/png;base64,iVBORw0KGgo"));
  EXPECT_EQ((uri.size() - std::string("data:image/png;base64,").size()) % 4, 0U) << "padded";
  EXPECT_TRUE(report::data_uri(grey(161, 8)).starts_with("data:image/jpeg;base64,"));
}

TEST(Cards, HoldMapsWithFourDigitsAndMasksAsImages) {
  const nlohmann::json heat = report::heat_part(grey(2, 2), {0, 0.123456F}, 2, 1, "slot 17");
  EXPECT_EQ(heat.at("heat").dump(), R"({"columns":1,"rows":2,"values":[0.0,0.1235]})");
  EXPECT_EQ(heat.at("caption"), "slot 17");
  const nlohmann::json one = report::mask_part(grey(2, 2), {0, 0, 1, 255}, "prediction");
  EXPECT_TRUE(one.at("mask").get<std::string>().starts_with("data:image/png;base64,"));
  EXPECT_NE(one.at("mask"), report::mask_part(grey(2, 2), {0, 0, 1, 1}, "prediction").at("mask"));
}

TEST(Cards, MapsShowTheirTextsAndCosines) {
  report::MapExample example{.image = grey(2, 2), .rows = 1, .columns = 2, .maps = {{"dog", std::nullopt, {0, 1}}, {"cat", 0.25, {1, 0}}},
                             .name = "b.png", .text = "a dog"};
  const nlohmann::json sheet = report::make_sheet(example);
  EXPECT_EQ(sheet.at("quote"), "a dog");
  ASSERT_EQ(sheet.at("images").size(), 3U);
  EXPECT_EQ(sheet.at("images").at(0).at("name"), "b.png");
  EXPECT_EQ(sheet.at("images").at(1).at("caption"), "dog") << "a word has no cosine";
  EXPECT_EQ(sheet.at("images").at(2).at("caption"), "cat \u00b7 0.250");
}

TEST(Results, JsonListsNamesAndScores) {
  TaskResult result{.task = "query", .data = "d", .metrics = {}, .samples = 2};
  result.readings = {{.of = "a dog", .items = {{"a, b.jpg", 0.5}, {"c.jpg", 0.25}}}, {"image", "a written caption"}};
  const auto readings = to_json(result).at("readings");
  EXPECT_EQ(readings.at("a dog").dump(), R"([{"name":"a, b.jpg","score":0.5},{"name":"c.jpg","score":0.25}])");
  EXPECT_EQ(readings.at("image"), "a written caption");
  EXPECT_EQ(result.readings[0].line(), "a, b.jpg 0.500, c.jpg 0.250");
  EXPECT_EQ(results_table({result}),
            "task   data  images  metric  value\n----------------------------------\nquery  d          2  none\n");
}

using RunCurveFiles = FolderTest;

TEST_F(RunCurveFiles, SkipsRowsThatAreNotJson) {
  write("metrics.jsonl", R"({"step":1,"loss":3.5,"terms":{"a":1,"b":2.5},"lr":0.1,"grad_norm":null})"
                         "\nbroken\n"
                         R"({"step":2,"loss":null,"terms":{"a":0.5,"b":2},"lr":0.2})"
                         "\n");
  const nlohmann::json curves = report::read_run_curves(folder_.string()).to_json(), values = curves.at("values");
  EXPECT_EQ(curves.at("steps").dump(), "[[1],[1,2]]");
  EXPECT_EQ(values.at("loss").dump(), R"({"steps":0,"y":[3.5]})");
  EXPECT_EQ(values.at("terms.b").dump(), R"({"steps":1,"y":[2.5,2]})");
  EXPECT_EQ(values.at("lr").at("y").dump(), "[0.1,0.2]");
  EXPECT_FALSE(values.contains("grad_norm"));
  EXPECT_TRUE(report::read_run_curves("/nowhere").to_json().at("values").empty());
}

TEST(ThinCurve, KeepsFewValuesUnchanged) {
  report::ThinCurve curve(4);
  for (int i = 0; i < 4; ++i) curve.add(i, i * i);
  EXPECT_EQ(curve.curve().points, (std::vector<std::pair<double, double>>{{0, 0}, {1, 1}, {2, 4}, {3, 9}}));
  EXPECT_TRUE(curve.curve().ranges.empty());
}

TEST(ThinCurve, AveragesManyValuesAndKeepsTheirRange) {
  constexpr int kCount = 100'000;
  report::ThinCurve curve(100);
  double sum = 0;
  for (int i = 0; i < kCount; ++i) {
    const double value = i == 77'777 ? 1000 : i % 10;
    sum += value;
    curve.add(i, value);
  }
  curve.add(kCount, std::nan(""));
  const report::Curve thinned = curve.curve();
  ASSERT_LE(thinned.points.size(), 100u);
  ASSERT_GE(thinned.points.size(), 50u);
  ASSERT_EQ(thinned.ranges.size(), thinned.points.size());
  double highest = 0, steps_before = -1;
  for (std::size_t i = 0; i < thinned.points.size(); ++i) {
    EXPECT_GT(thinned.points[i].first, steps_before);
    steps_before = thinned.points[i].first;
    EXPECT_EQ(thinned.ranges[i].first, 0);
    highest = std::max(highest, thinned.ranges[i].second);
  }
  EXPECT_EQ(highest, 1000) << "a single spike stays visible";
  EXPECT_EQ(curve.last(), 9);
}

TEST(RunCurves, NumbersAreShortAndManyValuesHaveARange) {
  report::RunCurves curves;
  for (int i = 0; i < 10'000; ++i) curves.add(i, "loss", i + 1.0 / 3);
  const nlohmann::json loss = curves.to_json().at("values").at("loss");
  ASSERT_EQ(loss.at("y").size(), loss.at("low").size());
  EXPECT_LE(loss.at("y").size(), 500U);
  EXPECT_EQ(loss.at("low").at(0).dump(), "0.333333");
  EXPECT_EQ(*curves.last("loss"), 9'999 + 1.0 / 3);
}

TEST(Results, ShowIntervalsNextToTheirMetrics) {
  TaskResult result{.task = "knn", .data = "d", .metrics = {{"top1", 0.5}, {"l2", 3}}, .samples = 10};
  result.intervals["top1"] = {0.4321, 0.5678};
  EXPECT_EQ(results_table({result}),
            "task  data  images  metric   value  95% interval\n"
            "------------------------------------------------\n"
            "knn   d         10  top1    50.00%  [43.2, 56.8]\n"
            "                    l2           3\n");
  EXPECT_EQ(to_json(result).at("intervals").dump(), R"({"top1":[0.4321,0.5678]})");
}

TEST(Results, JsonHoldsTheNumbersAndTheirRules) {
  const nlohmann::json json = to_json(zero_shot());
  EXPECT_EQ(json.at("task"), "zero_shot");
  EXPECT_EQ(json.at("metrics").at("top1"), 0.54321);
  EXPECT_EQ(json.at("rules").at("top1").dump(), R"({"better":"higher","percent":true})");
  EXPECT_EQ(json.at("rules").at("log_loss").dump(), R"({"better":"lower","percent":false})");
  EXPECT_EQ(json.at("rule"), "top k: the share of images.");
  EXPECT_EQ(json.at("samples"), 1234);
  EXPECT_EQ(json.at("skipped").at("bad_image"), 2);
}

TEST(Results, RulesOfOlderFilesFollowFromTheNames) {
  EXPECT_EQ(usual_rule("text_to_image_recall@5"), (MetricRule{true, Better::higher}));
  EXPECT_EQ(usual_rule("random_iou"), (MetricRule{true, Better::neither})) << "a baseline";
  EXPECT_EQ(usual_rule("log_loss"), (MetricRule{false, Better::lower}));
  EXPECT_EQ(usual_rule("l2"), (MetricRule{false, Better::neither}));
  const nlohmann::json stated = {{"rules", {{"loss", {{"better", "higher"}, {"percent", true}}}}}};
  EXPECT_EQ(rule_in(stated, "loss"), (MetricRule{true, Better::higher}));
  EXPECT_EQ(rule_in(stated, "top1"), usual_rule("top1"));
  EXPECT_EQ(results_in({{"results", {{{"task", "a"}}, 3}}}).size(), 1U) << "a run's file of an older version";
  EXPECT_EQ(results_in({{"tasks", {{{"task", "a"}}}}, {"results", nlohmann::json::array()}}).at(0).at("task"), "a");
}

TEST(Results, TableAndLineReadWell) {
  EXPECT_EQ(summary_line(zero_shot()), "zero_shot: top1 54.32%, log_loss 2 (1,234 images, 2 skipped)");
  const TaskResult probe{.task = "linear_probe", .data = "d", .metrics = {{"top1", 1}, {"l2", 0.001}}, .samples = 10};
  EXPECT_EQ(results_table({probe}),
            "task          data  images  metric    value\n"
            "-------------------------------------------\n"
            "linear_probe  d         10  top1    100.00%\n"
            "                            l2        0.001\n");
}

TEST(Results, SayHowManyTextsThereAre) {
  const TaskResult result{.task = "retrieval",
                          .data = "csv a.csv, 200 samples, 40 images",
                          .metrics = {{"r", 2}},
                          .samples = 40,
                          .texts = 200};
  EXPECT_EQ(summary_line(result), "retrieval: r 2 (40 images, 200 texts)");
  EXPECT_EQ(results_table({result, {.task = "knn", .data = "d", .metrics = {{"l2", 3}}, .samples = 1}}),
            "task       data                               images  texts  metric  value\n"
            "--------------------------------------------------------------------------\n"
            "retrieval  csv a.csv, 200 samples, 40 images      40    200  r           2\n"
            "knn        d                                       1         l2          3\n");
  EXPECT_EQ(to_json(result).at("texts"), 200);
  EXPECT_EQ(data_and_counts(result.data, 40, 200), "csv a.csv, 200 samples, 40 images, 200 texts");
  EXPECT_EQ(data_and_counts("csv a.csv, 1,200 samples", 200, 0), "csv a.csv, 1,200 samples, 200 images");
  EXPECT_EQ(data_and_counts("csv a.csv, 200 samples", 200, 0), "csv a.csv, 200 samples");
}

}  // namespace
}  // namespace tessera
