// Tests the table of a paper.
#include <cmath>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "src/report/paper_table.h"
#include "tests/support/error_of.h"
#include "tests/support/temporary_folder.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>

namespace tessera::report {
namespace {

TEST(PaperTable, IntervalOverSeedsIsStudents) {
  // From scipy.stats.t.ppf(0.975, n - 1)
  const std::map<int, double> quantiles = {{2, 12.706204736174694}, {3, 4.302652729749462}, {4, 3.182446305283708},
                                           {5, 2.776445105197793},   {10, 2.262157162798204}, {31, 2.042272456301236}};
  for (const auto& [count, quantile] : quantiles) {
    std::vector<double> values;
    double squares = 0;
    const double mean = (count - 1) / 2.0;
    for (int i = 0; i < count; ++i) {
      values.push_back(i);
      squares += (i - mean) * (i - mean);
    }
    const double half = quantile * std::sqrt(squares / (count - 1) / count);
    const auto interval = t_interval(values);
    ASSERT_TRUE(interval);
    EXPECT_NEAR(interval->low, mean - half, 1e-9 * half) << count;
    EXPECT_NEAR(interval->high, mean + half, 1e-9 * half) << count;
  }
  EXPECT_FALSE(t_interval({1}));
}

ComparedRun run_of(const std::string& name, const std::string& objective, int seed, std::map<std::string, double> metrics) {
  ComparedRun run;
  run.name = run.folder = name;
  run.settings = {{"seed", concat(seed)}, {"objective.name", objective}};
  for (const auto& [metric, value] : metrics) run.scores.push_back({"zero_shot", "shapes", metric, value});
  return run;
}

/// Lets a run have outcomes of top1: `right` of `samples` samples are right, the first ones or the last ones.
void add_outcomes(ComparedRun& run, int samples, int right, bool first = true) {
  std::vector<double> values;
  for (int i = 0; i < samples; ++i) values.push_back((first ? i < right : i >= samples - right) ? 1 : 0);
  run.scores.front().outcomes = std::make_shared<const TaskOutcomes>(
      TaskOutcomes{"zero_shot", "shapes", "mark", samples, {mean_outcomes("top1", values)}});
}

std::string notes_of(const PaperTable& table) {
  std::string out;
  for (const std::string& note : table.notes) out += note + "\n";
  return out;
}

TEST(PaperTable, ARowIsTheRunsThatDifferOnlyInTheirSeed) {
  const std::vector<ComparedRun> runs = {run_of("clip_seed0", "clip", 0, {{"top1", 0.5}}), run_of("sparc_1", "sparc", 0, {{"top1", 0.75}}),
                                         run_of("clip_seed1", "clip", 1, {{"top1", 0.52}}), run_of("sparc_2", "sparc", 1, {{"top1", 0.73}}),
                                         run_of("clip_seed2", "clip", 2, {{"top1", 0.54}})};
  const PaperTable table = paper_table(runs, {});
  ASSERT_EQ(table.rows.size(), 2u);
  EXPECT_EQ(table.rows[0].name, "clip");
  EXPECT_EQ(table.rows[0].runs, (std::vector<std::size_t>{0, 2, 4}));
  EXPECT_EQ(table.rows[1].name, "sparc");
  EXPECT_EQ(table.rows[1].seeds, (std::vector<std::string>{"0", "1"}));
  EXPECT_NEAR(table.rows[0].cells[0].mean, 0.52, 1e-12);
  // t(0.975, 2) * 0.02 / sqrt(3)
  EXPECT_NEAR(table.rows[0].cells[0].interval->high - 0.52, 4.302652729749462 * 0.02 / std::sqrt(3), 1e-9);
  EXPECT_FALSE(table.rows[0].cells[0].best);
  EXPECT_TRUE(table.rows[1].cells[0].best);
  const std::string text = paper_markdown(table);
  EXPECT_NE(text.find("52.0 ± 5.0"), std::string::npos) << text;
  EXPECT_NE(text.find("**74.0** ± 12.7"), std::string::npos) << text;
  const char* const seeds = "The rows have different seeds: clip has 3 runs (seeds 0, 1 and 2) and sparc has 2 runs (seeds 0 and 1).";
  EXPECT_NE(text.find(seeds), std::string::npos) << text;
}

TEST(PaperTable, RefusesTheSameSeedTwice) {
  const std::vector<ComparedRun> runs = {run_of("a", "clip", 0, {{"top1", 0.5}}), run_of("b", "clip", 0, {{"top1", 0.5}})};
  EXPECT_EQ(error_of([&] { paper_table(runs, {}); }),
            "a and b: have the same settings and the same seed 0, so they do not count as two runs: leave one of them out");
}

TEST(PaperTable, SaysWhichSettingsSplitRunsOfOneNameAndIgnoresThoseItIsTold) {
  std::vector<ComparedRun> runs = {run_of("clip_seed0", "clip", 0, {{"top1", 0.5}}), run_of("clip_seed1", "clip", 1, {{"top1", 0.6}})};
  for (ComparedRun& run : runs) run.settings.emplace_back("start.weights", run.name);
  const PaperTable split = paper_table(runs, {});
  ASSERT_EQ(split.rows.size(), 2u);
  EXPECT_EQ(split.rows[0].name, "clip_seed0");
  EXPECT_NE(notes_of(split).find("clip_seed0 and clip_seed1 are separate rows, because they differ in start.weights."), std::string::npos)
      << notes_of(split);
  const PaperTable joined = paper_table(runs, {.ignored = {"start.weights"}});
  ASSERT_EQ(joined.rows.size(), 1u);
  EXPECT_EQ(joined.rows[0].name, "clip");
}

TEST(PaperTable, RunsWithoutConfigurationAreRowsOfTheirOwnWithTheirIntervals) {
  std::vector<ComparedRun> runs = {run_of("published", "", 0, {{"top1", 0.5}}), run_of("other", "", 0, {{"top1", 0.25}})};
  for (ComparedRun& run : runs) run.settings.clear();
  runs[0].scores[0].interval = Interval{0.4, 0.6};
  const PaperTable table = paper_table(runs, {.digits = 2});
  EXPECT_EQ(table.rows.size(), 2u);
  const std::string text = paper_markdown(table);
  EXPECT_NE(text.find("| **50.00** [40.00, 60.00] |"), std::string::npos) << text;
  EXPECT_NE(text.find(" 25.00 |"), std::string::npos) << text;
  EXPECT_NE(text.find("of a single run; it says nothing about other seeds"), std::string::npos) << text;
}

TEST(PaperTable, MarksDifferencesFromTheBaselineOverSamplesAndOverSeeds) {
  // `sure` has the same gain for each seed, and on every sample that differs. `lucky` gains as much, but with one seed alone.
  std::vector<ComparedRun> runs;
  const auto add = [&](const char* name, int seed, int right, bool first) {
    runs.push_back(run_of(concat(name, "_seed", seed), name, seed, {{"top1", right / 100.0}}));
    add_outcomes(runs.back(), 100, right, first);
  };
  for (const int seed : {0, 1, 2}) add("base", seed, 50 + seed, true);
  for (const int seed : {0, 1, 2}) add("sure", seed, 60 + seed + seed % 2, true);
  for (const int seed : {0, 1, 2}) add("lucky", seed, seed == 2 ? 82 : 50 + seed, true);
  for (const int seed : {0, 1, 2}) add("mixed", seed, 53 + seed + seed % 2, false);
  const PaperTable table = paper_table(runs, {.baseline = "base"});
  ASSERT_EQ(table.rows.size(), 4u);
  const auto marks = [&](std::size_t row) {
    const auto& cell = table.rows[row].cells[0];
    return std::pair(cell.differs_over_samples.value(), cell.differs_over_seeds.value());
  };
  EXPECT_FALSE(table.rows[0].cells[0].differs_over_samples) << "the baseline itself";
  EXPECT_EQ(marks(1), std::pair(true, true));
  EXPECT_EQ(marks(2), std::pair(true, false)) << "the seeds differ too much";
  EXPECT_EQ(marks(3), std::pair(false, true)) << "other samples are right, so their choice decides";
  const std::string text = paper_markdown(table);
  EXPECT_NE(text.find("**61.3** ± 2.9 †‡ |"), std::string::npos) << text;
  EXPECT_NE(text.find(" † |"), std::string::npos) << text;
  EXPECT_NE(text.find("†: differs from base on these test samples (paired bootstrap over the samples, 95 %)."), std::string::npos) << text;
  EXPECT_EQ(error_of([&] { paper_table(runs, {.baseline = "bas"}); }),
            "--baseline bas: there is no such row; the rows are base, sure, lucky and mixed");
}

TEST(PaperTable, TheTestOverSamplesIsThePairedBootstrapOfTheMeansOverSeeds) {
  // 40 samples: the gain of the two seeds together is near the limit of significance, on either side.
  for (const int gain : {1, 2, 3, 4, 5, 6}) {
    std::vector<ComparedRun> runs;
    for (const int seed : {0, 1}) {
      runs.push_back(run_of(concat("a_seed", seed), "a", seed, {{"top1", 0.5}}));
      add_outcomes(runs.back(), 40, 20);
      runs.push_back(run_of(concat("b_seed", seed), "b", seed, {{"top1", (20 + gain * seed) / 40.0}}));
      add_outcomes(runs.back(), 40, 20 + gain * seed);
    }
    const auto of = [&](std::size_t run) { return bootstrap_values(runs[run].scores[0].outcomes->metrics, 40)[0]; };
    const std::vector<double> a = of(0), b0 = of(1), b1 = of(3);
    std::vector<double> b;
    for (std::size_t i = 0; i < a.size(); ++i) b.push_back((b0[i] + b1[i]) / 2);
    const bool differs = difference_interval(b, a)->low > 0;
    EXPECT_EQ(differs, gain > 3) << gain;
    EXPECT_EQ(paper_table(runs, {.baseline = "a"}).rows[1].cells[0].differs_over_samples, differs) << gain;
  }
}

TEST(PaperTable, RowsWithDifferentNumbersOfSeedsAreComparedByTheirMeans) {
  std::vector<ComparedRun> runs;
  for (const auto& [name, seeds] : {std::pair("a", 1), std::pair("b", 3)})
    for (int seed = 0; seed < seeds; ++seed) {
      runs.push_back(run_of(concat(name, "_seed", seed), name, seed, {{"top1", 0.5}}));
      add_outcomes(runs.back(), 40, 20);
    }
  EXPECT_EQ(paper_table(runs, {.baseline = "a"}).rows[1].cells[0].differs_over_samples, false);
}

TEST(PaperTable, SaysWhatIsMissingAndWhatCouldNotBeTested) {
  std::vector<ComparedRun> runs = {run_of("a_seed0", "a", 0, {{"top1", 0.5}}), run_of("a_seed1", "a", 1, {{"top1", 0.6}}),
                                   run_of("b_seed0", "b", 0, {{"top1", 0.7}}), run_of("b_seed1", "b", 1, {}),
                                   run_of("c_seed0", "c", 0, {}),              run_of("c_seed1", "c", 1, {{"top1", std::nan("")}})};
  const PaperTable table = paper_table(runs, {.columns = {"zero_shot.top1=ImageNet"}, .baseline = "a"});
  const std::string text = paper_markdown(table);
  EXPECT_NE(text.find("| **70.0** (1 of 2 runs) |"), std::string::npos) << text;
  EXPECT_NE(text.find("| c   |    2 |                      - |"), std::string::npos) << text;
  EXPECT_NE(text.find("ImageNet: missing for b_seed1 and c."), std::string::npos) << text;
  EXPECT_NE(text.find("ImageNet: † could not be tested for b, because samples.json is missing or lacks it, or the samples differ."),
            std::string::npos) << text;
  EXPECT_NE(text.find("ImageNet: ‡ could not be tested for b, because fewer than two seeds have a value there and in a."),
            std::string::npos) << text;
  EXPECT_EQ(text.find("differs from a"), std::string::npos) << "nothing was tested";
  EXPECT_NE(paper_csv(table).find("b,2,70.0,,,1,,\nc,2,,,,0,,\n"), std::string::npos) << paper_csv(table);
}

TEST(PaperTable, ColumnsWithTheSameGapShareASentence) {
  const std::vector<ComparedRun> runs = {run_of("a", "a", 0, {{"x", 1}, {"y", 1}, {"z", 1}}), run_of("b", "b", 0, {{"z", 2}})};
  const std::string two = notes_of(paper_table(runs, {.columns = {"zero_shot.x=X", "zero_shot.y=Y", "zero_shot.z=Z"}}));
  EXPECT_NE(two.find("X and Y: missing for b.\n"), std::string::npos) << two;
  const std::string all = notes_of(paper_table(runs, {.columns = {"zero_shot.x", "zero_shot.y", "zero_shot.z"}, .baseline = "a"}));
  EXPECT_NE(all.find("zero_shot z: † could not be tested for b"), std::string::npos) << all;
}

TEST(PaperTable, PrefersNumbersOfEvaluateToThoseDuringTraining) {
  ComparedRun run = run_of("a", "a", 0, {{"top1", 0.5}}), other = run_of("b", "b", 0, {{"top1", 0.25}});
  run.scores.push_back({"zero_shot", "imagenet", "top1", 0.75});
  EXPECT_EQ(paper_table({run, other}, {}).columns.size(), 2u);
  run.scores.back().evaluated = true;
  const PaperTable table = paper_table({run, other}, {});
  ASSERT_EQ(table.columns.size(), 1u);
  EXPECT_EQ(table.columns[0].data, "imagenet");
}

TEST(PaperTable, MarksNoBestValueAfterDifferentNumbersOfSteps) {
  std::vector<ComparedRun> runs = {run_of("a", "a", 0, {{"top1", 0.5}}), run_of("b", "b", 0, {{"top1", 0.6}})};
  runs[0].scores[0].step = 10;
  runs[1].scores[0].step = 20;
  const std::string text = paper_markdown(paper_table(runs, {}));
  EXPECT_EQ(text.find("**"), std::string::npos) << text;
  EXPECT_NE(text.find("Measured after different numbers of steps"), std::string::npos) << text;
}

TEST(PaperTable, ChoosesTheMainMetricsAndTheColumnsOfTheUser) {
  ComparedRun run = run_of("a", "a", 0, {{"top1", 0.5}, {"top5", 0.75}, {"mean_per_class", 0.5}});
  run.scores.push_back({"zero_shot", "flowers", "top1", 0.25});
  run.scores.push_back({"retrieval", "coco", "image_to_text_recall@1", 0.125});
  run.scores.push_back({"retrieval", "coco", "image_to_text_recall@5", 0.25});
  run.scores.push_back({"depth_probe", "nyu", "rms_error", 12.25, {}, {}, {}, {}, {.percent = false, .better = MetricRule::Better::lower}});
  run.scores.push_back({"depth_probe", "nyu", "l2", 1});
  const auto headings = [](const PaperTable& table) {
    std::vector<std::string> out;
    for (const auto& column : table.columns) out.push_back(column.heading.empty() ? column.default_heading : column.heading);
    return out;
  };
  const PaperTable all = paper_table({run}, {});
  EXPECT_EQ(headings(all), (std::vector<std::string>{"zero_shot top1 (shapes)", "zero_shot top1 (flowers)",
                                                     "retrieval image_to_text_recall@1", "depth_probe rms_error"}));
  EXPECT_NE(paper_markdown(all).find("depth_probe rms_error ↓"), std::string::npos);
  EXPECT_NE(paper_markdown(all).find(" 12.2 |"), std::string::npos) << "as many digits as a percentage";
  const auto with = [&](const std::string& column) { return paper_table({run}, {.columns = {column}}); };
  EXPECT_EQ(headings(with("zero_shot[flow].top1=Flowers, 102")), (std::vector<std::string>{"Flowers, 102"}));
  EXPECT_EQ(headings(with("retrieval.image_to_text_recall@5")), (std::vector<std::string>{"retrieval image_to_text_recall@5"}));
  EXPECT_EQ(error_of([&] { with("zero_shot.top1=ImageNet"); }),
            "--columns zero_shot.top1: zero_shot.top1 was measured on several data: say which, as zero_shot[TEXT].top1 with a part of "
            "[shapes] and [flowers]");
  EXPECT_EQ(error_of([&] { with("zero_shot[imagenet].top1"); }),
            "--columns zero_shot[imagenet].top1: zero_shot.top1 was measured on other data: [shapes] and [flowers]");
  EXPECT_EQ(error_of([&] { with("zero_shot.top2"); }), "--columns: no run has zero_shot.top2: did you mean zero_shot.top1?");
  EXPECT_EQ(error_of([&] { with("top1"); }),
            "--columns top1: expected TASK.METRIC=Heading or TASK[part of the data's description].METRIC=Heading");
}

TEST(PaperTable, WritesLatexAndCsv) {
  std::vector<ComparedRun> runs;
  for (const int seed : {0, 1}) {
    runs.push_back(run_of(concat("b&w_seed", seed), "a", seed, {{"top1", 0.5 + 0.125 * seed}}));
    runs.push_back(run_of(concat("color_seed", seed), "b", seed, {{"top1", 0.75 + 0.125 * seed}}));
  }
  for (std::size_t i = 0; i < runs.size(); ++i) add_outcomes(runs[i], 8, static_cast<int>(8 * runs[i].scores[0].value));
  const PaperTable table = paper_table(runs, {.columns = {"zero_shot.top1=R$@1$, \"all\""}, .baseline = "b&w"});
  EXPECT_EQ(paper_latex(table),
            "% Shares are in percent.\n"
            "% ± is half of the 95 % t-interval of a mean over seeds.\n"
            "% Bold: the best mean of a column.\n"
            "% †: differs from b&w on these test samples (paired bootstrap over the samples, 95 %).\n"
            "% ‡: differs from b&w over seeds (paired t-test over the seeds of both, 5 %).\n"
            "\\begin{tabular}{lrc}\n"
            "\\toprule\n"
            " & runs & R$@1$, \"all\" \\\\\n"
            "\\midrule\n"
            "b\\&w & 2 & 56.2 {\\scriptsize $\\pm$79.4} \\\\\n"
            "color & 2 & \\textbf{81.2}$^{\\dagger\\ddagger}$ {\\scriptsize $\\pm$79.4} \\\\\n"
            "\\bottomrule\n"
            "\\end{tabular}\n");
  const std::vector<std::string> lines = split_lines(paper_csv(table));
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0], R"(row,runs,"R$@1$, ""all""","R$@1$, ""all"" low","R$@1$, ""all"" high","R$@1$, ""all"" runs",)"
                      R"("R$@1$, ""all"" differs over samples","R$@1$, ""all"" differs over seeds")");
  EXPECT_TRUE(lines[1].starts_with("b&w,2,56.25,-23.1")) << lines[1];
  EXPECT_TRUE(lines[2].ends_with(",2,yes,yes")) << lines[2];
}

}  // namespace
}  // namespace tessera::report
