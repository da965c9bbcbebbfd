#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>

#include "src/report/chart.h"
#include "src/report/class_colors.h"
#include "src/report/comparison.h"
#include "src/report/html.h"
#include "src/report/markdown_table.h"
#include "src/report/metric.h"
#include "src/report/score_rule.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/report/task_result.h>

namespace tessera::report {
namespace {

constexpr double kBytesAGibibyte = 1024.0 * 1024.0 * 1024.0;

constexpr const char* kEvaluations = "evaluation.";

/// A curve with a fixed key and its own title. In a section, these curves come before the curves whose keys have one of the section's
/// prefixes.
struct KnownCurve {
  const char* key;
  const char* title;
  double factor = 1;
  const char* unit = "";
};
constexpr std::array<KnownCurve, 5> kTrainingCurves = {{{"loss", "Loss"},
                                                        {"lr", "Learning rate"},
                                                        {"samples_per_second", "Samples per second"},
                                                        {"grad_norm", "Gradient norm"},
                                                        {"logit_scale", "Logit scale (its logarithm)"}}};
constexpr std::array<KnownCurve, 5> kMachineCurves = {
    {{"mfu", "Model FLOPs utilization (MFU), %", 100},
     {"wait_share", "Time waiting for data, %", 100},
     {"memory.resident", "Memory of rank 0, GiB", 1 / kBytesAGibibyte},
     {"memory.resident_peak", "Memory of rank 0, peak, GiB", 1 / kBytesAGibibyte},
     {"memory.device_peak", "GPU memory, peak, GiB", 1 / kBytesAGibibyte}}};

/// Returns the color of a run in all tables and charts.
std::int64_t color_of_run(std::size_t run) {
  return static_cast<std::int64_t>(run);
}

std::string name_with_swatch(const ComparedRun& run, std::size_t index) {
  return concat("<span class=\"run\"><i style=\"background:", css_color(color_of_run(index)), "\"></i>",
                escape(run.name), "</span>");
}

std::string step_note(std::int64_t step) {
  return concat("<small class=\"soft\">step ", with_thousands(step), "</small>");
}

/// Returns the header cells. If all values of a run's column were measured at the same step, the run's cell shows this step below its name.
std::string run_headers(const std::vector<ComparedRun>& runs, const std::vector<ScoreRow>& rows) {
  std::string html;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const std::set<std::int64_t> steps = steps_measured(rows, i);
    html += concat("<th class=\"n\">", name_with_swatch(runs[i], i),
                   steps.size() == 1 ? "<br>" + step_note(*steps.begin()) : "", "</th>");
  }
  return html;
}

std::string last_text(const RunCurves& curves, const std::string& key) {
  const double* value = curves.last(key);
  return value == nullptr ? "-" : three_digits(*value);
}

std::string samples_per_step(const ComparedRun& run) {
  const Curve samples = run.curves.curve("samples", "");
  if (samples.points.empty() || samples.points.back().first <= 0) return "";
  return with_thousands(std::llround(samples.points.back().second / samples.points.back().first));
}

/// Returns a table of the runs' state, objective, device and so on. The table has a column for each run.
std::string run_table(const std::vector<ComparedRun>& runs) {
  using TextOf = std::string (*)(const ComparedRun&);
  const std::array<std::pair<const char*, TextOf>, 11> facts = {
      {{"State", state_text},
       {"Trained for", step_text},
       {"Objective",
        [](const ComparedRun& run) {
          const std::string* objective = run.setting("objective.name");
          return objective == nullptr ? "" : *objective;
        }},
       {"Parameters", [](const ComparedRun& run) { return run.parameters; }},
       {"Samples per step, of all processes", samples_per_step},
       {"Last loss", [](const ComparedRun& run) { return last_text(run.curves, "loss"); }},
       {"Samples/s", [](const ComparedRun& run) { return last_text(run.curves, "samples_per_second"); }},
       {"Device", [](const ComparedRun& run) { return run.device; }},
       {"Date", [](const ComparedRun& run) { return run.date; }},
       {"Version", [](const ComparedRun& run) { return run.version; }},
       {"Folder", [](const ComparedRun& run) { return run.folder; }}}};
  std::string rows, header;
  for (std::size_t i = 0; i < runs.size(); ++i) header += "<th>" + name_with_swatch(runs[i], i) + "</th>";
  for (const auto& [name, text_of] : facts) {
    rows += concat("<tr><td class=\"whole\">", name, "</td>");
    for (const ComparedRun& run : runs) {
      const std::string text = text_of(run);
      rows += concat("<td class=\"setting\">", text.empty() ? "-" : breakable(text), "</td>");
    }
    rows += "</tr>";
  }
  return "<div class=\"card scroll\"><table><tr><th>Run</th>" + header + "</tr>" + rows + "</table></div>";
}

/// `mixed` marks the runs whose values in the table belong to different steps.
std::string score_row(const ScoreRow& row, const std::vector<bool>& mixed) {
  const char* const arrow = row.better == Better::higher  ? "\u00a0\u2191"
                            : row.better == Better::lower ? "\u00a0\u2193"
                                                          : "";
  std::string html = concat("<tr><td>", breakable(row.metric), arrow, "</td>");
  for (std::size_t i = 0; i < row.values.size(); ++i) {
    const std::string text = escape(score_text(row, i)), interval = escape(interval_text(row, i));
    html += concat("<td class=\"n\">", row.best[i] ? "<b>" + text + "</b>" : text,
                   is_like_best(row, i) ? "\u00a0\u2248" : "",
                   mixed[i] && row.steps[i] ? "<br>" + step_note(*row.steps[i]) : "",
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

/// Returns a table of the differences between runs, with a row for each pair of runs and a column for each metric. Returns an empty string
/// if no two runs were measured on the same samples.
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
  return concat("<details><summary class=\"soft\">Pairwise differences</summary><p class=\"soft\">On the same samples, with "
                "95&nbsp;% intervals; significant differences are bold. If two runs do not differ at all, one difference in twenty "
                "still looks significant.</p><div class=\"card scroll\"><table><tr><th></th>",
                header, "</tr>", html, "</table></div></details>");
}

std::string score_table(const std::vector<ComparedRun>& runs, const std::vector<ScoreRow>& rows) {
  std::vector<bool> mixed;
  for (std::size_t i = 0; i < runs.size(); ++i) mixed.push_back(steps_measured(rows, i).size() > 1);
  std::string html;
  for (const ScoreRow& row : rows) html += score_row(row, mixed);
  const std::string apart = note_on_steps(rows);
  return concat(apart.empty() ? "" : "<p>" + apart + "</p>", "<div class=\"card scroll\"><table><tr><th>Metric</th>",
                run_headers(runs, rows), "</tr>", html, "</table></div>");
}

/// Returns the explanation of the row's numbers. If the runs' settings need different explanations, returns a general explanation that
/// holds for all settings.
std::string rule_of(const ScoreRow& row) {
  return row.rule.empty() ? score_rule(row.task.substr(0, row.task.find(' '))) : row.rule;
}

/// Returns one table of scores for each task and data set, below an explanation of the table's numbers.
std::string score_tables(const std::vector<ComparedRun>& runs) {
  std::vector<ScoreRow> rows = score_rows(runs);
  if (rows.empty()) return "";
  std::string html =
      "<h2>Evaluations</h2><p class=\"soft\">The last evaluation of each run. The best value of a row is bold; \u2191: more is better, "
      "\u2193: less is better; -: not measured. In brackets: 95&nbsp;% intervals by a bootstrap over samples; \u2248: not "
      "significantly different from the best on the same samples.</p>";
  for (std::string line : take_lone_tasks(runs, rows)) {
    line.front() = 'O';
    html += "<p>" + escape(line) + "</p>";
  }
  for (std::size_t i = 0; i < rows.size();) {
    const ScoreRow& first = rows[i];
    std::vector<ScoreRow> own;
    for (; i < rows.size() && rows[i].task == first.task && rows[i].data == first.data; ++i) own.push_back(rows[i]);
    html += concat("<h3>", escape(first.task), "</h3><p class=\"soft\">", escape(first.data), ". ", escape(rule_of(first)),
                   "</p>", score_table(runs, own), difference_table(runs, own));
  }
  return html;
}

/// Shortens values such as "2.302585092994046" to "2.30259", unless different values would then look the same.
std::vector<std::string> shown_values(const SettingRow& row) {
  std::vector<std::string> whole, rounded;
  for (const auto& value : row.values) {
    whole.push_back(value.value_or("-"));
    rounded.push_back(six_digits(whole.back()));
  }
  const auto kinds = [](const std::vector<std::string>& values) { return std::set(values.begin(), values.end()).size(); };
  return kinds(rounded) == kinds(whole) ? rounded : whole;
}

std::string setting_table(const std::vector<ComparedRun>& runs) {
  const std::vector<SettingRow> rows = differing_settings(runs);
  const auto configured =
      std::count_if(runs.begin(), runs.end(), [](const auto& run) { return !run.settings.empty(); });
  if (configured < 2) return "";
  if (rows.empty()) return "<h2>Settings that differ</h2><p class=\"soft\">None: all settings are the same.</p>";
  std::string html;
  for (const SettingRow& row : rows) {
    html += "<tr><td>" + breakable(row.key) + "</td>";
    for (const std::string& value : shown_values(row)) html += "<td class=\"setting\">" + breakable(value) + "</td>";
    html += "</tr>";
  }
  std::string header;
  for (std::size_t i = 0; i < runs.size(); ++i) header += "<th>" + name_with_swatch(runs[i], i) + "</th>";
  return "<h2>Settings that differ</h2><div class=\"card scroll\"><table><tr><th>Setting</th>" + header + "</tr>" +
         html + "</table></div>";
}

/// Overlays the curve `known` of all runs that have it. On a page with several runs, the chart is empty if fewer than two runs have the
/// curve.
CurveChart overlaid(const std::vector<ComparedRun>& runs, const KnownCurve& known) {
  CurveChart chart{.title = known.title, .curves = {}, .unit = known.unit};
  for (std::size_t i = 0; i < runs.size(); ++i) {
    Curve curve = runs[i].curves.curve(known.key, runs[i].name, known.factor);
    if (curve.points.empty()) continue;
    curve.color = color_of_run(i);
    chart.curves.push_back(std::move(curve));
  }
  return chart.curves.size() >= std::min<std::size_t>(2, runs.size()) ? chart : CurveChart{.title = known.title, .curves = {}};
}

/// Returns the curve of the FLOP rate, in the same unit as on the pages of the runs.
KnownCurve flop_rate(const std::vector<ComparedRun>& runs) {
  const bool tera = std::any_of(runs.begin(), runs.end(), [](const ComparedRun& run) {
    const double* last = run.curves.last("tflops");
    return last != nullptr && *last >= 1;
  });
  return tera ? KnownCurve{"tflops", "TFLOP/s of the model, per device"}
              : KnownCurve{"tflops", "GFLOP/s of the model, per device", 1000};
}

/// Overlays the curves of the keys with this prefix. The title of each chart is `title` followed by the rest of the key.
std::vector<CurveChart> overlaid_with_prefix(const std::vector<ComparedRun>& runs, const std::string& prefix,
                                             const std::string& title) {
  std::set<std::string> keys;
  for (const ComparedRun& run : runs)
    for (const std::string& key : run.curves.keys())
      if (key.starts_with(prefix)) keys.insert(key);
  std::vector<CurveChart> charts;
  for (const std::string& key : keys) {
    const std::string name = title + key.substr(prefix.size());
    const bool share = title.empty() && prefix == kEvaluations && is_share(key.substr(key.find('.', prefix.size()) + 1));
    charts.push_back(overlaid(runs, {key.c_str(), name.c_str(), share ? 100.0 : 1.0, share ? "%" : ""}));
  }
  return charts;
}

CurveChart overlaid(const std::vector<ComparedRun>& runs, const std::string& title, const std::string& x_name,
                    ThinCurve ComparedRun::*member) {
  CurveChart chart{title, {}, x_name};
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
  charts.insert(std::next(charts.begin()), {overlaid(runs, "Loss over minutes", "minutes", &ComparedRun::loss_by_minutes),
                                            overlaid(runs, "Loss over samples seen", "samples", &ComparedRun::loss_by_samples)});
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
  const std::string note =
      objectives_differ(differing_settings(runs)) ? "The objectives differ, so their losses cannot be compared." : "";
  std::vector<CurveChart> machine = {overlaid(runs, flop_rate(runs))};
  for (const KnownCurve& known : kMachineCurves) machine.push_back(overlaid(runs, known));
  return page(
      title, "",
      concat("<h1>", escape(title), "</h1>", run_table(runs), score_tables(runs), setting_table(runs),
             charts_under("Training", note, training_charts(runs)),
             charts_under("Evaluations during training", "", overlaid_with_prefix(runs, kEvaluations, "")),
             charts_under("Speed and memory", "", machine),
             "<footer>Written by Tessera. Everything on this page is inline; it can be mailed or archived "
             "as one file.</footer>"));
}

}  // namespace tessera::report
