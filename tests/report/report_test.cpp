#include <cmath>
#include <map>
#include <regex>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "src/report/chart.h"
#include "src/report/class_colors.h"
#include "src/report/group_sheet.h"
#include "src/report/html.h"
#include "src/report/markdown_table.h"
#include "src/report/picture.h"
#include "src/report/report.h"
#include "src/report/scatter_chart.h"
#include "src/report/score_rule.h"
#include "src/report/thin_curve.h"
#include "src/report/token_sheet.h"
#include "tests/support/temporary_folder.h"
#include <tessera/base/error.h>
#include <tessera/evaluation/task.h>

namespace tessera {
namespace {

Image grey(std::int64_t height, std::int64_t width) {
  return {height, width, std::vector<std::uint8_t>(static_cast<std::size_t>(3 * height * width), 100)};
}

std::vector<TaskResult> some_results() {
  TaskResult zero_shot{
      .task = "zero_shot", .data = "<data> & \"more\"", .metrics = {{"top1", 0.54321}}, .samples = 1234};
  zero_shot.pictures.class_names = {"a <b>", "c"};
  zero_shot.pictures.classification = {{grey(8, 8), 0, {{1, 0.75}, {0, 0.25}}}};
  zero_shot.pictures.confusion = {{3, 1}, {0, 2}};
  zero_shot.skipped["bad_image"] = 2;
  TaskResult retrieval{.task = "retrieval", .data = "x", .metrics = {{"text_to_image_recall@1", 1}}, .samples = 1};
  RetrievalSheet by_text{.text_to_image = true,
                         .query_image = grey(400, 300),
                         .query_text = "a <script>",
                         .truth = {},
                         .rank = 1,
                         .items = {{grey(8, 8), "", 0.5, false}, {grey(8, 8), "", 0.25, true}}};
  RetrievalSheet by_image{.text_to_image = false,
                          .query_image = grey(8, 8),
                          .query_text = "",
                          .truth = {"own"},
                          .rank = 7,
                          .items = {{{}, "other", 0.5, false}}};
  retrieval.pictures.retrieval = {by_text, by_image};
  TaskResult segmentation{.task = "segmentation", .data = "y", .metrics = {{"image_miou", 0.5}}, .samples = 1};
  segmentation.pictures.class_names = {"sky", "background"};
  segmentation.pictures.background_class = 1;
  segmentation.pictures.segmentation = {{grey(2, 2), {0, 0, 1, 255}, {0, 0, 0, 0}, 0.5}};
  TaskResult slots{.task = "slots", .data = "z", .metrics = {{"mean_cosine", 0.5}}, .samples = 1};
  slots.pictures.slots = {
      {grey(2, 2), 2, 1, {"a", " <b>", "s", " ", ""}, {{17, 0.5, {0, 0.6F}, {0.25F, 0.5F, 0.25F, 0, 0}}}}};
  TaskResult tokens{.task = "tokens", .data = "v", .metrics = {{"caption_precision@5", 0.5}}, .samples = 1};
  tokens.pictures.tokens = {{grey(2, 2), 2, 1, {{"a <i>", 2}, {"##s", 1}}, {{"<u>", {0, 1}}}},
                            {grey(2, 2), 0, 0, {}, {}}};
  TaskResult groups{.task = "token_group_iou", .data = "u", .metrics = {{"iou", 0.5}}, .samples = 1};
  groups.pictures.groups = {
      {grey(2, 2), {0, 1, 0, 1}, {{"a <i>", true, 1, {0.25F, 0.75F}}, {"", false, -1, {0.5F, 0.5F}}}},
      {grey(2, 2), {}, {}}};
  return {zero_shot, retrieval, segmentation, slots, tokens, groups};
}

TEST(Report, IsOneSelfContainedPage) {
  const std::string html =
      html_report({"run", {{"Parameters", "5"}}, {{"Loss", {{"loss", {{0, 1}, {1, 0.5}}}}}}}, some_results());
  EXPECT_EQ(html.find("http:"), std::string::npos);
  EXPECT_EQ(html.find("https:"), std::string::npos);
  EXPECT_EQ(html.find("<script"), std::string::npos);
  EXPECT_EQ(html.find("<link"), std::string::npos);
  EXPECT_EQ(html.find("url("), std::string::npos);
  for (std::size_t at = html.find("src=\""); at != std::string::npos; at = html.find("src=\"", at + 1)) {
    EXPECT_EQ(html.compare(at + 5, 11, "data:image/"), 0);
  }
  EXPECT_NE(html.find("data:image/png;base64,"), std::string::npos);
  EXPECT_NE(html.find("data:image/jpeg;base64,"), std::string::npos);  // the 400-pixel image
  EXPECT_NE(html.find("<polyline"), std::string::npos);
  EXPECT_NE(html.find("54.32%"), std::string::npos);
  EXPECT_NE(html.find("right item at place 2"), std::string::npos);
  EXPECT_NE(html.find("skipped 2 (bad_image)"), std::string::npos);
}

TEST(Report, EveryTaskDescribesItsScore) {
  for (const std::string& task : evaluation_tasks().names())
    EXPECT_TRUE(report::score_rule(task).ends_with(".")) << task << " needs its line in src/report/score_rule.cpp";
  EXPECT_NE(html_report({"run", {}, {}}, some_results()).find("the share of images whose class is among the k nearest"),
            std::string::npos);
}

config::Node settings_of(const std::string& yaml) {
  return config::parse_yaml(yaml, "settings");
}

TEST(Report, DescriptionOfSegmentationFollowsItsSettings) {
  const auto rule = [](const char* yaml) { return report::score_rule("segmentation", settings_of(yaml)); };
  EXPECT_NE(rule("{by: patches, candidates: present}").find("nearest to its patch, among the classes"), std::string::npos);
  EXPECT_NE(rule("{by: groups, candidates: all}")
                .find("nearest to its group, among all classes, the background included (candidates: all)."),
            std::string::npos);
  EXPECT_NE(report::score_rule("segmentation").find("patch or group, among all classes or only"), std::string::npos);
  TaskResult result{.task = "segmentation", .data = "d", .settings = settings_of("{by: groups, candidates: all}"),
                    .metrics = {{"image_miou", 0.5}}};
  EXPECT_NE(html_report({"run", {}, {}}, {result}).find("nearest to its group, among all classes"), std::string::npos);
}

TEST(Report, SettingsShowTheDataFromTheCommandLine) {
  TaskResult result{.task = "knn", .data = "d", .settings = settings_of("{source: ~, train: {name: own}}"), .metrics = {}};
  ReportHead head{"run", {}, {}, {{"source", settings_of("{name: given}")}, {"train", settings_of("{name: other}")}}};
  const std::string html = html_report(head, {result});
  EXPECT_NE(html.find("name: given"), std::string::npos) << html;
  EXPECT_NE(html.find("name: own"), std::string::npos);
  EXPECT_EQ(html.find("name: other"), std::string::npos);
}

TEST(Report, KindsOfWrongCaptionsHaveBarsWithoutTiles) {
  TaskResult result{.task = "hard_negatives", .data = "d", .metrics = {{"accuracy", 0.5}, {"add_att_accuracy", 0.25}}};
  result.pictures.class_kind = "kind";
  result.pictures.class_values = {{"add_att", 0.25}, {"swap_obj", 0.75}};
  const std::string html = html_report({"run", {}, {}}, {result});
  EXPECT_NE(html.find("<h3>Accuracy by kind</h3>"), std::string::npos);
  EXPECT_NE(html.find("<b>50.00%</b>"), std::string::npos);
  EXPECT_EQ(html.find("<b>25.00%</b>"), std::string::npos) << "a bar shows it";
  EXPECT_NE(html.find("swap, two are exchanged"), std::string::npos);
}

TEST(Report, MarksRightAndWrongBySignsAndUsesClassColors) {
  TaskResult result{.task = "zero_shot", .data = "d", .metrics = {}};
  result.pictures.class_names = {"red", "green"};
  result.pictures.classification = {{grey(8, 8), 1, {{0, 0.75}, {1, 0.25}}}, {grey(8, 8), 0, {{0, 0.75}, {1, 0.25}}}};
  const std::string html = html_report({"run", {}, {}}, {result});
  const std::string green = report::css_color(*report::color_in("green"));
  EXPECT_NE(html.find("title=\"wrong\">\u2717</span><i class=\"dot\" style=\"background:" + green + "\"></i>green<"),
            std::string::npos);
  EXPECT_NE(html.find("title=\"right\">\u2713</span>"), std::string::npos);
  EXPECT_NE(html.find("<div class=\"bar right\"><span>green</span><span>25.0%</span><div><i style=\"width:25.0%;background:" + green),
            std::string::npos)
      << "the true class is outlined in its own color";
}

TEST(Report, NamesBreakOnlyBetweenWords) {
  EXPECT_EQ(report::breakable("image_to_text_recall@1"), "image_<wbr>to_<wbr>text_<wbr>recall<wbr>@1");
  EXPECT_EQ(report::breakable("a/b<c.yaml"), "a/<wbr>b&lt;c.<wbr>yaml");
  EXPECT_EQ(report::breakable("0.25 a. b"), "0.25 a. b");
  EXPECT_EQ(report::breakable(""), "");
}

TEST(Report, NumbersAreShort) {
  EXPECT_EQ(report::six_digits("2.302585092994046"), "2.30259");
  for (const char* kept : {"0.001", "1.0", "1234567890", "1.0.2", "a.5", ""}) EXPECT_EQ(report::six_digits(kept), kept);
  EXPECT_EQ(report::four_digits(9.866e-07), "9.87 \u00b7 10\u207b\u2077");
  EXPECT_EQ(report::four_digits(0.00123456), "0.001235");
  EXPECT_EQ(report::four_digits(0), "0");
}

TEST(Report, MasksAreFlatWithAnOutline) {
  const Image colored = report::color_by_class(grey(5, 5), std::vector<std::uint8_t>(25, 0), 1, {{200, 0, 0}});
  EXPECT_EQ(colored.pixels[0], 189) << "no outline along the edge of the image";
  std::vector<std::uint8_t> mask(25, 1);
  for (const int place : {6, 7, 8, 11, 12, 13, 16, 17, 18}) mask[static_cast<std::size_t>(place)] = 0;
  const Image square = report::color_by_class(grey(5, 5), mask, 1, {{200, 0, 0}});
  EXPECT_EQ(square.pixels[3 * 12 + 1], 49) << "the fill is translucent";
  EXPECT_EQ(square.pixels[3 * 6 + 1], 0) << "the outline is opaque";
  EXPECT_EQ(square.pixels[0], 114) << "the background has no color";
}

TEST(Report, OverlaysUseTheColorsInClassNames) {
  TaskResult result{.task = "segmentation", .data = "y", .metrics = {}, .samples = 1};
  result.pictures.class_names = {"green", "red", "background"};
  result.pictures.background_class = 2;
  result.pictures.segmentation = {{grey(2, 2), {1, 1, 2, 2}, {1, 1, 1, 1}, 0.5}};
  const std::string html = html_report({"run", {}, {}}, {result});
  EXPECT_NE(html.find("background:" + report::css_color(*report::color_in("red")) + "\"></i>red"), std::string::npos);
  EXPECT_NE(html.find(report::img(report::color_by_class(grey(2, 2), {1, 1, 1, 1}, 2, report::class_colors({"green", "red"})),
                                  "prediction")),
            std::string::npos);
}

TEST(Report, ShowsSlotsOverPatchesAndTokens) {
  TaskResult result{.task = "slots", .data = "z", .metrics = {{"mean_cosine", 0.5}}, .samples = 1};
  SlotExample example{
      grey(2, 2), 2, 1, {"a", " <b>", "s", " ", ""}, {{17, 0.5, {0, 0.6F}, {0.25F, 0.5F, 0.25F, 0, 0}}}};
  result.pictures.slots = {example};
  const std::string html = html_report({"run", {}, {}}, {result});
  EXPECT_NE(html.find("slot 17 &middot; 0.50"), std::string::npos);
  EXPECT_NE(html.find("var(--heat) 50%,transparent)\">a</span>"), std::string::npos);
  EXPECT_NE(
      html.find("</span> <span style=\"background:color-mix(in srgb,var(--heat) 100%,transparent)\">&lt;b&gt;</span>"
                "<span style=\"background:color-mix(in srgb,var(--heat) 50%,transparent)\">s</span>"),
      std::string::npos)
      << "tokens of one word are joined";
  EXPECT_NE(html.find("var(--heat) 0%,transparent)\"> </span> <span"), std::string::npos) << "a token that is a space";
  EXPECT_NE(html.find("var(--heat) 0%,transparent)\">&middot;</span>"), std::string::npos);
  EXPECT_NE(html.find(report::img(report::heat_map(grey(2, 2), {0, 0.6F}, 2, 1), "slot 17")), std::string::npos);
}

TEST(HeatMap, ReachesFromTheImageInLightGrayToDarkRed) {
  // The gray of 100 is lightened to 177.5. The greatest value covers 85 % of it with (128, 0, 38).
  const std::vector<std::uint8_t> least = {178, 178, 178}, greatest = {135, 27, 59};
  const Image map = report::heat_map(grey(1, 2), {-2, 3}, 1, 2);
  EXPECT_EQ(std::vector(map.pixels.begin(), map.pixels.begin() + 3), least);
  EXPECT_EQ(std::vector(map.pixels.begin() + 3, map.pixels.end()), greatest);
  EXPECT_EQ(report::heat_map(grey(1, 1), {0.5F}, 1, 1).pixels, least) << "all values are equal";
  EXPECT_TRUE(report::heat_scale({-2, 3, 1}).starts_with("<div class=\"heat\"><span>-2.00</span>"));
  EXPECT_TRUE(report::heat_scale({-2, 3, 1}).ends_with("<span>3.00</span></div>"));
}

TEST(Report, ImagesShowTheirNames) {
  TaskResult result{.task = "query", .data = "d", .metrics = {}, .samples = 1};
  RetrievalSheet sheet{.query_text = "a dog", .rank = -1};
  sheet.items.push_back({grey(8, 8), "beach/a_<dog>.jpg", 0.25, false});
  result.pictures.queries = {sheet};
  result.pictures.segmentation = {{.image = grey(2, 2), .target = {}, .prediction = {0, 0, 1, 1}, .name = "c.png"}};
  result.pictures.maps = {{.image = grey(2, 2),
                           .rows = 1,
                           .columns = 2,
                           .maps = {{"dog", std::nullopt, {0, 1}}},
                           .name = "b.png",
                           .text = "a dog"}};
  const std::string html = html_report({"run", {}, {}}, {result});
  EXPECT_NE(
      html.find("#1 &middot; 0.250<br><span title=\"beach/a_&lt;dog&gt;.jpg\">a_<wbr>&lt;dog&gt;.<wbr>jpg</span>"),
      std::string::npos)
      << html;
  EXPECT_NE(html.find("<span title=\"b.png\">b.<wbr>png</span>"), std::string::npos);
  EXPECT_NE(html.find("<figcaption>dog<div class=\"heat\">"), std::string::npos) << "a word has no cosine";
  EXPECT_NE(html.find("<figcaption>prediction</figcaption>"), std::string::npos) << "without a mask there is no IoU";
  EXPECT_EQ(html.find("ground truth</figcaption>"), std::string::npos);
  EXPECT_EQ(html.find("mean_best_cosine:"), std::string::npos) << "numbers are not explained if there are none";
}

TEST(Report, NotesAndChanceStandBeforeTheImagesAndSettingsBehind) {
  TaskResult result{
      .task = "zero_shot", .data = "d", .settings = settings_of("{topk: [1]}"), .metrics = {{"top1", 0.5}}};
  result.notes = {"dog -> <a dog>"};
  result.chance["top1"] = 0.25;
  result.pictures.class_names = {"a"};
  result.pictures.classification = {{grey(8, 8), 0, {{0, 1}}}};
  const std::string html = html_report({"run", {{"Tokenizer", "bpe"}}, {}}, {result});
  std::vector<std::size_t> places;
  for (const char* part : {"<li>dog -&gt; &lt;a dog&gt;</li>", "top1, chance 25.00%", "<h3>Examples</h3>",
                           "Classes, prompts and settings", "<dt>Tokenizer</dt>"})
    places.push_back(html.find(part));
  EXPECT_TRUE(std::ranges::is_sorted(places)) << html;
  EXPECT_NE(places.back(), std::string::npos);
  EXPECT_EQ(to_json(result).at("chance").at("top1"), 0.25);
  EXPECT_EQ(to_json(result).at("notes").at(0), "dog -> <a dog>");
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

TEST(Report, ShowsWordsInTheColorsOfTheirGroups) {
  const GroupExample example{grey(2, 2),
                             {0, 0, 1, 1},
                             {{"", false, -1, {0.5F, 0.5F}},
                              {"a", true, 0, {0.75F, 0.25F}},
                              {" <b", true, 1, {0, 1}},
                              {"s", false, 1, {0.5F, 0.5F}},
                              {" ", false, -1, {0.5F, 0.5F}},
                              {"c", false, 0, {0.5F, 0.5F}}}};
  const std::string svg = report::group_picture(example);
  const auto count = [&](const std::string& text) {
    int found = 0;
    for (std::size_t at = svg.find(text); at != std::string::npos; at = svg.find(text, at + 1)) ++found;
    return found;
  };
  EXPECT_EQ(count("<image "), 2) << "the image, and the image in the colors of its groups";
  EXPECT_NE(svg.find(report::data_uri(report::color_by_class(example.image, {0, 0, 1, 1}, -1))), std::string::npos);
  const auto word = [](const char* group, const char* x) {
    return concat("<rect x=\"", x, "\" y=\"10.0\" width=\"8.4\" height=\"20.0\" fill=\"", group, "\"");
  };
  // The two images and their margins end at x = 270. Letters and spaces are 8.4 wide.
  EXPECT_EQ(count(word(report::css_color(0).c_str(), "270.0")), 1);
  EXPECT_EQ(count("&lt;b</text>"), 2) << "in the caption and over the matrix";
  EXPECT_EQ(count(word(report::css_color(1).c_str(), "303.6")), 1) << "the tokens of one word are joined";
  EXPECT_EQ(count(word(report::css_color(0).c_str(), "320.4")), 1) << "after a token that is a space";
  EXPECT_EQ(count("<line "), 2) << "one line per token of a phrase";
  EXPECT_EQ(count("fill-opacity=\"0.75\""), 1);
  EXPECT_EQ(count("fill-opacity=\"1.00\""), 1);
  EXPECT_EQ(count(">\u00b7</text>"), 2) << "tokens without text";
  const std::string sheet = report::group_sheet({example, example});
  EXPECT_TRUE(sheet.starts_with("<svg xmlns="));
  EXPECT_NE(sheet.find("translate(0 0.0)"), std::string::npos);
  EXPECT_NE(sheet.find("translate(0 140.0)"), std::string::npos) << "below the first";
}

TEST(Report, ShowsFailedTasksWithTheirReason) {
  const std::string html = html_report({"run", {}, {}}, {}, {{"knn", "no <train>"}});
  EXPECT_NE(html.find("<b>knn</b> failed: no &lt;train&gt;"), std::string::npos);
}

TEST(Report, NamesAreEscaped) {
  const std::string html = html_report({"a<b", {}, {}}, some_results());
  EXPECT_NE(html.find("<h1>a&lt;b</h1>"), std::string::npos);
  EXPECT_NE(html.find("&lt;data&gt; &amp; &quot;more&quot;"), std::string::npos);
  EXPECT_EQ(html.find("a <script>"), std::string::npos);
}

TEST(Report, OpenTagsAreClosed) {
  const std::string html = html_report({"run", {{"a", "b"}}, {{"Loss", {{"loss", {{0, 1}, {1, 2}}}}}}}, some_results());
  std::map<std::string, int> open;
  const std::regex tag(
      "<(/?)(div|table|tr|td|th|figure|figcaption|section|ol|li|span|dl|dt|dd|header|main|body|h1|h2|h3|p|nav|svg)\\b");
  for (std::sregex_iterator it(html.begin(), html.end(), tag), end; it != end; ++it)
    open[(*it)[2]] += (*it)[1].length() > 0 ? -1 : 1;
  for (const auto& [name, count] : open) EXPECT_EQ(count, 0) << name;
}

TEST(Report, DataUriIsPaddedBase64) {
  const std::string uri = report::data_uri(grey(1, 1));
  EXPECT_TRUE(uri.starts_with("data:image/png;base64,iVBORw0KGgo"));
  EXPECT_EQ((uri.size() - std::string("data:image/png;base64,").size()) % 4, 0U);
}

using RunCurveFiles = FolderTest;

TEST_F(RunCurveFiles, SkipsRowsThatAreNotJson) {
  write("metrics.jsonl", R"({"step":1,"loss":3.5,"terms":{"a":1,"b":2.5},"lr":0.1,"grad_norm":null})"
                         "\nbroken\n"
                         R"({"step":2,"loss":null,"terms":{"a":0.5,"b":2},"lr":0.2})"
                         "\n");
  const auto charts = read_run_curves(folder_.string());
  ASSERT_EQ(charts.size(), 3U);
  EXPECT_EQ(charts[0].title, "Loss");
  EXPECT_EQ(charts[0].curves.at(0).points.size(), 1U);
  EXPECT_EQ(charts[1].curves.size(), 2U);
  EXPECT_EQ(charts[2].curves.at(0).points.at(1).second, 0.2);
  EXPECT_TRUE(read_run_curves("/nowhere").empty());
}

TEST(ThinCurve, KeepsFewValuesUnchanged) {
  report::ThinCurve curve(4);
  for (int i = 0; i < 4; ++i) curve.add(i, i * i);
  EXPECT_EQ(curve.curve("x").points, (std::vector<std::pair<double, double>>{{0, 0}, {1, 1}, {2, 4}, {3, 9}}));
  EXPECT_TRUE(curve.curve("x").ranges.empty());
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
  const Curve thinned = curve.curve("x");
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

TEST(Chart, ShowsValuesUnderThePointer) {
  EXPECT_NE(report::svg_chart({"t", {{"loss", {{0, 1}, {100, 0.5}}}}}).find("<title>loss, step 100: 0.500</title>"),
            std::string::npos);
  std::vector<std::pair<double, double>> many;
  for (int i = 0; i < 1000; ++i) many.emplace_back(i, i);
  const std::string svg = report::svg_chart({"t", {{"x", many}}});
  std::size_t titles = 0;
  for (std::size_t at = svg.find("<title>"); at != std::string::npos; at = svg.find("<title>", at + 1)) ++titles;
  EXPECT_LE(titles, 60U);
  EXPECT_GE(titles, 30U);
}

TEST(Chart, RangesBecomeABand) {
  const std::string svg = report::svg_chart({"t", {{"x", {{0, 1}, {1, 2}}, {{0, 2}, {1, 3}}}}});
  EXPECT_NE(svg.find("fill-opacity"), std::string::npos);
  EXPECT_EQ(report::svg_chart({"t", {{"x", {{0, 1}, {1, 2}}}}}).find("fill-opacity"), std::string::npos);
  EXPECT_EQ(report::svg_chart({"t", {{"x", {}}}}), "");
}

TEST(Chart, NamesAxesAndLabelsTheirFirstTick) {
  const CurveChart chart{.title = "t", .curves = {{"x", {{2, 10}, {60, 50}}}}, .x_name = "minutes", .unit = "%"};
  const std::string svg = report::svg_chart(chart);
  EXPECT_NE(svg.find(">minutes</text>"), std::string::npos);
  EXPECT_NE(svg.find(">10%</text>"), std::string::npos);
  EXPECT_NE(svg.find("text-anchor=\"middle\">0</text>"), std::string::npos) << "the axis starts at a round number";
}

TEST(Chart, DrawsTheUpperOfCoincidingLinesThinner) {
  const std::string svg = report::svg_chart({"t", {{"x", {{0, 1}, {1, 2}}}, {"y", {{0, 1}, {1, 2}}}}});
  const std::regex width("stroke-width=\"([0-9.]+)\"");
  std::vector<double> widths;
  for (std::sregex_iterator it(svg.begin(), svg.end(), width), end; it != end; ++it) widths.push_back(std::stod((*it)[1]));
  ASSERT_EQ(widths.size(), 2u);
  EXPECT_GT(widths[0], widths[1] + 1);
}

TEST(Chart, ShowsOneValueAsANumber) {
  const std::string html = report::chart_cards({{"Loss", {{"loss", {{1, 0.5}}}}}, {"Rate", {{"lr", {{0, 1}, {1, 2}}}}}, {"None", {}}});
  EXPECT_NE(html.find("<b>0.500</b><span>Loss</span>"), std::string::npos) << html;
  EXPECT_EQ(html.find("<svg"), html.rfind("<svg"));
  EXPECT_EQ(html.find("None"), std::string::npos);
  TaskResult result{.task = "knn", .data = "d", .metrics = {}, .samples = 1};
  result.pictures.class_values = {{"cat", 0.25}};
  EXPECT_NE(html_report({"run", {}, {}}, {result}).find("<b>25.0%</b><span>Accuracy, cat</span>"), std::string::npos);
}

TEST(Scatter, DrawsImagesAsDotsAndTextsAsNamedSquares) {
  ScatterChart chart{.title = "map", .points = {}, .class_names = {"red", "b<c"}};
  chart.points = {{-1, 0, 0, false, "first"}, {1, 2, 1, false, "second"}, {0, 1, 1, true, "b<c"}};
  const std::string svg = report::svg_scatter(chart);
  EXPECT_NE(svg.find("<circle cx=\"26.0\" cy=\"394.0\""), std::string::npos) << "the least x and y are at the lower left";
  EXPECT_NE(svg.find("<circle cx=\"494.0\" cy=\"26.0\""), std::string::npos) << svg;
  EXPECT_NE(svg.find("<rect"), std::string::npos);
  EXPECT_NE(svg.find(">b&lt;c</text>"), std::string::npos);
  EXPECT_EQ(svg.find("<text"), svg.rfind("<text")) << "images show their names only under the pointer";
  EXPECT_EQ(report::svg_scatter({}), "");
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
  const std::string html = html_report({"run", {}, {}}, {result});
  EXPECT_NE(html.find("top1 [43.2, 56.8]"), std::string::npos);
  EXPECT_NE(html.find("95&nbsp;% interval"), std::string::npos);
}

TEST(Results, QueryHasNoRightImage) {
  TaskResult result{.task = "query", .data = "d", .metrics = {}, .samples = 1};
  RetrievalSheet sheet{.query_text = "a dog", .rank = -1};
  sheet.items.push_back({grey(8, 8), "", 0.25, false});
  result.pictures.queries = {sheet};
  const std::string html = html_report({"run", {}, {}}, {result});
  EXPECT_NE(html.find("<q>a dog</q></header>"), std::string::npos) << "no rank";
  EXPECT_EQ(html.find("ground truth"), std::string::npos);
}

TEST(Chart, LabelsStayWithinTheChart) {
  const std::regex label("<text x=\"([-0-9.]+)\"[^>]*text-anchor=\"(\\w+)\">([^<]+)<");
  const std::string svg = report::svg_chart({"t", {{"x", {{0, 1e-5}, {123456, 5e-5}}}}});
  for (std::sregex_iterator it(svg.begin(), svg.end(), label), end; it != end; ++it) {
    const double x = std::stod((*it)[1]), width = 9.0 * static_cast<double>((*it)[3].length());
    EXPECT_GE((*it)[2] == "end" ? x - width : x - width / 2, 0) << (*it)[3];
    EXPECT_LE((*it)[2] == "end" ? x : x + width / 2, 520) << (*it)[3];
  }
  EXPECT_NE(svg.find(">100k<"), std::string::npos);
}

TEST(Results, JsonHoldsTheNumbers) {
  const nlohmann::json json = to_json(some_results().at(0));
  EXPECT_EQ(json.at("task"), "zero_shot");
  EXPECT_EQ(json.at("metrics").at("top1"), 0.54321);
  EXPECT_EQ(json.at("samples"), 1234);
  EXPECT_EQ(json.at("skipped").at("bad_image"), 2);
}

TEST(Results, TableAndLineReadWell) {
  const auto results = some_results();
  EXPECT_EQ(summary_line(results[0]), "zero_shot: top1 54.32% (1,234 images, 2 skipped)");
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

struct DrawnWord {
  double x = 0, y = 0, size = 0;
  std::string text;

  double middle() const { return y - 0.35 * size; }
};

std::vector<DrawnWord> words_of(const std::string& svg) {
  const std::regex word("<text x=\"([-0-9.]+)\" y=\"([-0-9.]+)\"[^>]*font-size:([0-9.]+)px[^>]*>([^<]*)<");
  std::vector<DrawnWord> words;
  for (std::sregex_iterator it(svg.begin(), svg.end(), word), end; it != end; ++it)
    words.push_back({std::stod((*it)[1]), std::stod((*it)[2]), std::stod((*it)[3]), (*it)[4]});
  return words;
}

TEST(TokenCloud, DrawsGreaterWeightsLargerWithoutOverlap) {
  std::vector<TokenExample::Token> tokens;
  for (int i = 0; i < 40; ++i) tokens.push_back({"w" + std::to_string(1000 + i), 4.0 - 0.1 * i});
  const std::vector<DrawnWord> words = words_of(report::token_cloud(tokens));
  ASSERT_EQ(words.size(), tokens.size());
  for (std::size_t i = 0; i < words.size(); ++i) {
    EXPECT_EQ(words[i].text, tokens[i].text);
    if (i > 0) {
      EXPECT_LE(words[i].size, words[i - 1].size);
    }
    // Estimates each word's extent from its font size, so that the test does not depend on the font.
    EXPECT_GT(words[i].x - words[i].size, 0);
    EXPECT_LT(words[i].x + words[i].size, 300);
    EXPECT_GT(words[i].y - 0.7 * words[i].size, 0);
    EXPECT_LT(words[i].y, 180);
    for (std::size_t k = 0; k < i; ++k)
      EXPECT_TRUE(std::abs(words[i].x - words[k].x) > 1.2 * (words[i].size + words[k].size) ||
                  std::abs(words[i].middle() - words[k].middle()) > 0.4 * (words[i].size + words[k].size))
          << words[i].text << " overlaps " << words[k].text;
  }
}

TEST(TokenCloud, FindsRoomForLongWordsOfOneWeight) {
  std::vector<TokenExample::Token> tokens(30, {std::string(60, 'm'), 1});
  EXPECT_EQ(words_of(report::token_cloud(tokens)).size(), 30U);
  EXPECT_EQ(report::token_cloud({}), "");
}

}  // namespace
}  // namespace tessera
