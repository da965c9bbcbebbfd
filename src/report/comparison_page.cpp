#include <algorithm>
#include <array>
#include <map>
#include <set>

#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/report/chart.h>
#include <tessera/report/class_colors.h>
#include <tessera/report/comparison.h>
#include <tessera/report/html.h>
#include <tessera/report/markdown_table.h>
#include <tessera/report/metric.h>
#include <tessera/report/task_result.h>
#include <tessera/report/score_rule.h>

namespace tessera::report {
namespace {

constexpr double kBytesAGibibyte = 1024.0 * 1024.0 * 1024.0;

/// Curves that are drawn first, and under names of their own.
struct KnownCurve {
  const char* key;
  const char* title;
  double factor = 1;
};
constexpr std::array<KnownCurve, 5> kTrainingCurves = {{{"loss", "Loss"},
                                                        {"lr", "Learning rate"},
                                                        {"samples_per_second", "Samples per second"},
                                                        {"grad_norm", "Gradient norm"},
                                                        {"logit_scale", "Logit scale (its logarithm)"}}};
constexpr std::array<KnownCurve, 6> kMachineCurves = {
    {{"mfu", "Model FLOPs utilization (MFU), %", 100},
     {"tflops", "TFLOP/s of the model, per device"},
     {"wait_share", "Time waiting for data, %", 100},
     {"memory.resident", "Memory of rank 0, GiB", 1 / kBytesAGibibyte},
     {"memory.resident_peak", "Memory of rank 0, peak, GiB", 1 / kBytesAGibibyte},
     {"memory.device_peak", "GPU memory, peak, GiB", 1 / kBytesAGibibyte}}};

/// That of a run in all tables and charts.
std::int64_t color_of_run(std::size_t run) {
  return static_cast<std::int64_t>(run);
}

std::string name_with_swatch(const ComparedRun& run, std::size_t index) {
  return concat("<span class=\"run\"><i style=\"background:", css_color(color_of_run(index)), "\"></i>",
                escape(run.name), "</span>");
}

std::string run_headers(const std::vector<ComparedRun>& runs) {
  std::string html;
  for (std::size_t i = 0; i < runs.size(); ++i) html += "<th class=\"n\">" + name_with_swatch(runs[i], i) + "</th>";
  return html;
}

std::string last_text(const RunCurves& curves, const std::string& key) {
  const double* value = curves.last(key);
  return value == nullptr ? "-" : three_digits(*value);
}

std::string run_table(const std::vector<ComparedRun>& runs) {
  std::string rows;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const ComparedRun& run = runs[i];
    rows += concat("<tr><td>", name_with_swatch(run, i), "</td><td class=\"n\">",
                   run.step ? with_thousands(*run.step) : "-", "</td><td class=\"n\">", last_text(run.curves, "loss"),
                   "</td><td class=\"n\">", last_text(run.curves, "samples_per_second"), "</td><td class=\"whole\">",
                   run.version.empty() ? "-" : escape(run.version), "</td><td class=\"path\">", escape(run.folder),
                   "</td></tr>");
  }
  return "<div class=\"card scroll\"><table><tr><th>Run</th><th class=\"n\">Step</th><th class=\"n\">Last loss</th><th "
         "class=\"n\">Samples/s</th><th>Version</th><th>Folder</th></tr>" +
         rows + "</table></div>";
}

std::string score_row(const ScoreRow& row) {
  const char* const arrow = row.better == Better::higher  ? "\u00a0\u2191"
                            : row.better == Better::lower ? "\u00a0\u2193"
                                                          : "";
  std::string html = concat("<tr><td class=\"whole\">", escape(row.metric), arrow, "</td>");
  for (std::size_t i = 0; i < row.values.size(); ++i) {
    const std::string text = escape(score_text(row, i)), interval = escape(interval_text(row, i));
    html += concat("<td class=\"n\">", row.best[i] ? "<b>" + text + "</b>" : text,
                   is_like_best(row, i) ? "\u00a0\u2248" : "",
                   interval.empty() ? "" : "<br><small class=\"soft\">" + interval + "</small>", "</td>");
  }
  return html + "</tr>";
}

using RunPair = std::pair<std::size_t, std::size_t>;

std::string difference_cell(const ScoreRow& row, const RunPair& runs) {
  const auto found = std::find_if(row.differences.begin(), row.differences.end(),
                                  [&](const auto& each) { return RunPair(each.first, each.second) == runs; });
  if (found == row.differences.end()) return "<td class=\"n\">-</td>";
  const Difference& difference = *found;
  const double factor = is_share(row.metric) ? 100 : 1;
  const std::string value = concat(difference.value > 0 ? "+" : "", fixed(factor * difference.value, is_share(row.metric) ? 1 : 3));
  return concat("<td class=\"n\">", difference.beyond_chance() ? "<b>" + value + "</b>" : value,
                "<br><small class=\"soft\">", escape(format_interval(row.metric, difference.interval)), "</small></td>");
}

/// Each two runs, metric by metric; empty where no two were measured on the same samples.
std::string difference_table(const std::vector<ComparedRun>& runs, const std::vector<ScoreRow>& rows) {
  std::string header;
  std::set<RunPair> pairs;
  for (const ScoreRow& row : rows) {
    if (!row.differences.empty()) header += "<th class=\"n\">" + escape(row.metric) + "</th>";
    for (const Difference& each : row.differences) pairs.insert({each.first, each.second});
  }
  if (pairs.empty()) return "";
  std::string html;
  for (const RunPair& pair : pairs) {
    html += concat("<tr><td class=\"whole\">", name_with_swatch(runs[pair.first], pair.first), " \u2212 ",
                   name_with_swatch(runs[pair.second], pair.second), "</td>");
    for (const ScoreRow& row : rows)
      if (!row.differences.empty()) html += difference_cell(row, pair);
    html += "</tr>";
  }
  return concat("<details><summary class=\"soft\">Differences of each two</summary><p class=\"soft\">Of the same samples, with "
                "95&nbsp;% intervals; those beyond chance are bold. Of twenty differences that are none, one looks like "
                "one.</p><div class=\"card scroll\"><table><tr><th></th>",
                header, "</tr>", html, "</table></div></details>");
}

/// A table for each task and its data, under the rule of its numbers.
std::string score_tables(const std::vector<ComparedRun>& runs) {
  const std::vector<ScoreRow> rows = score_rows(runs);
  if (rows.empty()) return "";
  std::string html =
      "<h2>Evaluations</h2><p class=\"soft\">The last of each run. The best of a row is bold; \u2191: more is better, "
      "\u2193: less is better; -: not measured. In brackets: 95&nbsp;% intervals by a bootstrap over samples; \u2248: on the "
      "same samples no different from the best beyond chance.</p>";
  for (std::size_t i = 0; i < rows.size();) {
    const ScoreRow& first = rows[i];
    std::string table;
    std::vector<ScoreRow> own;
    for (; i < rows.size() && rows[i].task == first.task && rows[i].data == first.data; ++i) {
      table += score_row(rows[i]);
      own.push_back(rows[i]);
    }
    html += concat("<h3>", escape(first.task), "</h3><p class=\"soft\">", escape(first.data), ". ",
                   escape(score_rule(first.task.substr(0, first.task.find(' ')))),
                   "</p><div class=\"card scroll\"><table><tr><th>Metric</th>", run_headers(runs), "</tr>", table,
                   "</table></div>", difference_table(runs, own));
  }
  return html;
}

std::string setting_table(const std::vector<ComparedRun>& runs) {
  const std::vector<SettingRow> rows = differing_settings(runs);
  const auto configured =
      std::count_if(runs.begin(), runs.end(), [](const auto& run) { return !run.settings.empty(); });
  if (configured < 2) return "";
  if (rows.empty()) return "<h2>Settings that differ</h2><p class=\"soft\">None: all settings are the same.</p>";
  std::string html;
  for (const SettingRow& row : rows) {
    html += "<tr><td>" + escape(row.key) + "</td>";
    for (const auto& value : row.values) html += "<td class=\"setting\">" + escape(value.value_or("-")) + "</td>";
    html += "</tr>";
  }
  std::string header;
  for (std::size_t i = 0; i < runs.size(); ++i) header += "<th>" + name_with_swatch(runs[i], i) + "</th>";
  return "<h2>Settings that differ</h2><div class=\"card scroll\"><table><tr><th>Setting</th>" + header + "</tr>" +
         html + "</table></div>";
}

/// The curve of each run that has it; empty unless two have it (or there is one run).
CurveChart overlaid(const std::vector<ComparedRun>& runs, const KnownCurve& known) {
  CurveChart chart{known.title, {}};
  for (std::size_t i = 0; i < runs.size(); ++i) {
    Curve curve = runs[i].curves.curve(known.key, runs[i].name, known.factor);
    if (curve.points.empty()) continue;
    curve.color = color_of_run(i);
    chart.curves.push_back(std::move(curve));
  }
  return chart.curves.size() >= std::min<std::size_t>(2, runs.size()) ? chart : CurveChart{known.title, {}};
}

/// Those of the keys with the prefix, under the rest of their names.
std::vector<CurveChart> overlaid_with_prefix(const std::vector<ComparedRun>& runs, const std::string& prefix,
                                             const std::string& title) {
  std::set<std::string> keys;
  for (const ComparedRun& run : runs)
    for (const std::string& key : run.curves.keys())
      if (key.starts_with(prefix)) keys.insert(key);
  std::vector<CurveChart> charts;
  for (const std::string& key : keys) {
    const std::string name = title + key.substr(prefix.size());
    charts.push_back(overlaid(runs, {key.c_str(), name.c_str()}));
  }
  return charts;
}

CurveChart overlaid(const std::vector<ComparedRun>& runs, const std::string& title, ThinCurve ComparedRun::*member) {
  CurveChart chart{title, {}};
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if ((runs[i].*member).empty()) continue;
    chart.curves.push_back((runs[i].*member).curve(runs[i].name));
    chart.curves.back().color = color_of_run(i);
  }
  return chart;
}

std::vector<CurveChart> training_charts(const std::vector<ComparedRun>& runs) {
  std::vector<CurveChart> charts;
  for (const KnownCurve& known : kTrainingCurves) charts.push_back(overlaid(runs, known));
  charts.insert(std::next(charts.begin()), {overlaid(runs, "Loss over minutes", &ComparedRun::loss_by_minutes),
                                            overlaid(runs, "Loss over samples seen", &ComparedRun::loss_by_samples)});
  for (const auto& [prefix, title] : std::vector<std::pair<std::string, std::string>>{
           {"terms.", "Loss term "}, {"statistics.", ""}, {"grad_norms.", "Gradient norm, "}}) {
    const std::vector<CurveChart> more = overlaid_with_prefix(runs, prefix, title);
    charts.insert(charts.end(), more.begin(), more.end());
  }
  return charts;
}

std::string charts_under(const std::string& heading, const std::string& note, const std::vector<CurveChart>& charts) {
  const std::string cards = chart_cards(charts);
  if (cards.empty()) return "";
  return concat("<h2>", heading, "</h2>", note.empty() ? "" : concat("<p class=\"soft\">", note, "</p>"), cards);
}

bool objectives_differ(const std::vector<SettingRow>& settings) {
  return std::any_of(settings.begin(), settings.end(), [](const auto& row) { return row.key == "objective.name"; });
}

}  // namespace

std::string comparison_page(const std::vector<ComparedRun>& runs) {
  const std::string title = runs.size() == 1 ? runs.front().name : concat("Comparison of ", runs.size(), " runs");
  const std::string note = concat(
      "Over steps, where the title says nothing else.",
      objectives_differ(differing_settings(runs)) ? " The objectives differ, so their losses do not compare." : "");
  std::vector<CurveChart> machine;
  for (const KnownCurve& known : kMachineCurves) machine.push_back(overlaid(runs, known));
  return page(
      title, "",
      concat("<h1>", escape(title), "</h1>", run_table(runs), score_tables(runs), setting_table(runs),
             charts_under("Training", note, training_charts(runs)),
             charts_under("Evaluations during training", "", overlaid_with_prefix(runs, "evaluation.", "")),
             charts_under("Speed and memory", "", machine),
             "<footer>Written by Tessera. Everything on this page is inline; it can be mailed or archived "
             "as one file.</footer>"));
}

}  // namespace tessera::report
