#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <optional>

#include <nlohmann/json.hpp>

#include "src/base/clock.h"
#include "src/report/chart.h"
#include "src/report/html.h"
#include "src/report/markdown_table.h"
#include "src/report/metric.h"
#include "src/report/run_curves.h"
#include "src/training/checkpoint/checkpoint.h"
#include "src/training/log/metrics_row.h"
#include "src/training/log/run_changes.h"
#include "src/training/log/run_page.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/evaluation/task.h>
#include <tessera/io/atomic_file.h>

namespace tessera {

namespace fs = std::filesystem;

namespace {

using report::breakable;
using report::escape;
using report::number_card;

constexpr int kReloadSeconds = 30;
constexpr std::size_t kWarnings = 12;
constexpr std::size_t kReadings = 6;  // maximum number of steps whose output is shown for a sample (TaskResult::readings)
constexpr const char* kEvaluationPrefix = "evaluation.";
constexpr const char* kStyle =
    "<style>.number "
    "b{font-size:20px;white-space:nowrap}.state{display:flex;flex-wrap:wrap;gap:12px;align-items:baseline;margin:10px "
    "0 6px}"
    ".progress{height:10px;background:var(--bar);border-radius:99px;overflow:hidden;margin:8px 0}"
    ".progress i{display:block;height:100%;background:var(--accent)}"
    ".warnings{font:12px/1.6 ui-monospace,monospace;white-space:pre-wrap;overflow-wrap:anywhere;margin:0}"
    ".files a{margin-right:14px;white-space:nowrap;color:var(--accent)}a{color:var(--accent)}</style>";

std::string link(const std::string& path, const std::string& text) {
  return concat("<a href=\"", escape(path), "\">", breakable(text), "</a>");
}

// The value of a metric and the step at which it was measured.
struct Measured {
  std::int64_t step;
  double value;
};

// Returns the better of two values of the metric `name`. Returns the earlier value if the values are equal, if the new value is not finite,
// or if neither higher nor lower values of the metric are better.
std::optional<Measured> better_of(const std::string& name, const std::optional<Measured>& before, const Measured& now) {
  const report::Better better = report::better_value(name.substr(name.find('.') + 1));
  if (better == report::Better::neither || !std::isfinite(now.value)) return before;
  if (!before) return now;
  const bool improved = better == report::Better::higher ? now.value > before->value : now.value < before->value;
  return improved ? now : before;
}

// Removes charts in which every curve has fewer than two values. A table shows these values instead.
std::vector<CurveChart> lines_of(std::vector<CurveChart> charts) {
  std::erase_if(charts, [](const CurveChart& chart) {
    return std::all_of(chart.curves.begin(), chart.curves.end(), [](const Curve& c) { return c.points.size() < 2; });
  });
  return charts;
}

// Returns true for a warning about skipped samples. The page shows these samples in a table of their own.
bool tells_of_a_sample(std::string_view warning) {
  return warning.starts_with("warning skipped: ") || warning.ends_with(": further skipped samples are only counted");
}

// Returns the newest warnings and errors in log.txt ("12:34:56 warning ..."), including those of earlier sessions.
std::vector<std::string> warnings_of(const std::string& folder) {
  std::vector<std::string> out;
  std::ifstream file(folder + "/log.txt");
  constexpr std::streamoff enough = 1 << 18;
  if (file.seekg(0, std::ios::end); file.tellg() > enough)
    file.seekg(-enough, std::ios::end);
  else
    file.seekg(0);
  for (std::string line; std::getline(file, line);) {
    const std::size_t space = line.find(' ');
    if (space == std::string::npos) continue;
    const std::string_view rest = std::string_view(line).substr(space + 1);
    const bool worth = rest.starts_with("warning ") || rest.starts_with("error ");
    if (worth && !tells_of_a_sample(rest)) out.push_back(line);
  }
  if (out.size() > kWarnings) out.erase(out.begin(), out.end() - static_cast<std::ptrdiff_t>(kWarnings));
  return out;
}

std::vector<std::string> names_in(const std::string& folder, const std::string& prefix, const std::string& suffix) {
  std::vector<std::string> out;
  std::error_code missing;
  for (const auto& entry : fs::directory_iterator(folder, missing)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(prefix) && name.ends_with(suffix) && name.find(".tmp") == std::string::npos)
      out.push_back(name);
  }
  std::sort(out.begin(), out.end());
  return out;
}

/// Returns the line of a reading in step_N.json.
std::string reading_line(const nlohmann::json& value) {
  Reading reading;
  if (value.is_string()) reading.text = value.get<std::string>();
  if (value.is_array())
    for (const auto& item : value)
      if (item.is_object()) reading.items.emplace_back(item.value("name", ""), item.value("score", 0.0));
  return reading.line();
}

std::string state_block(const RunStatus& s, const std::string& written) {
  const double share = s.total_steps > 0 ? static_cast<double>(s.step) / static_cast<double>(s.total_steps) : 0;
  const bool running = s.state == "running";
  return concat("<div class=\"state\"><span class=\"tag ", s.state == "interrupted" ? "stopped" : s.good ? "good" : "bad", "\">", escape(s.state),
                "</span><span>step ", with_thousands(s.step), " of ", with_thousands(s.total_steps),
                "</span><span class=\"soft\">", with_thousands(s.samples), " samples, trained for ",
                format_duration(s.seconds), "</span>",
                running ? concat("<span>ETA ", format_duration(s.seconds_left), "</span>") : "",
                "</div><div class=\"progress\"><i style=\"width:", fixed(100 * share, 1), "%\"></i></div>",
                s.note.empty() ? "" : "<p>" + breakable(s.note) + "</p>", "<p class=\"soft\">Written ", written,
                running ? concat("; updated at most once a minute, and reloaded every ", kReloadSeconds,
                                 " s. If this time is long past, the run was killed.")
                        : "",
                "</p>");
}

std::string files_block(const std::string& folder) {
  std::string html;
  for (const char* name : {"config.yaml", "metrics.jsonl", "metrics.csv", "log.txt"})
    if (fs::exists(folder + "/" + name)) html += link(name, name);
  for (const std::string& trace : names_in(folder, "trace_", ".json")) html += link(trace, trace);
  return html.empty() ? "" : "<p class=\"files\">" + html + "</p>";
}

std::string checkpoints_block(const std::string& folder) {
  std::string rows;
  for (const std::string& name : names_in(folder + "/checkpoints", "step_", "")) {
    const std::string path = "checkpoints/" + name;
    std::string files;
    for (const char* file : {"model.safetensors", "ema.safetensors", "teacher.safetensors", "state.safetensors", "manifest.json"})
      if (fs::exists(folder + "/" + path + "/" + file)) files += link(path + "/" + file, file);
    rows = concat("<tr><td>", link(path + "/", name), "</td><td class=\"files\">", files, "</td></tr>") + rows;
  }
  if (rows.empty()) return "";
  return "<h2>Checkpoints</h2><div class=\"card scroll\"><table><tr><th>Folder</th><th>Files</th></tr>" + rows +
         "</table></div>";
}

std::string skipped_block(const std::map<std::string, std::int64_t>& skipped) {
  if (skipped.empty()) return "";
  std::string rows;
  for (const auto& [reason, count] : skipped)
    rows += concat("<tr><td>", escape(reason), "</td><td class=\"n\">", with_thousands(count), "</td></tr>");
  return "<h2>Samples skipped in this session</h2><div class=\"card scroll\"><table><tr><th>Reason</th><th "
         "class=\"n\">Samples</th></tr>" +
         rows + "</table></div>";
}

// If there are too many steps, drops the step whose neighbors are closest to each other, so that the remaining steps stay spread over the
// run.
void thin(std::map<std::int64_t, std::string>& by_step) {
  if (by_step.size() <= kReadings) return;
  auto closest = std::next(by_step.begin());
  const auto gap = [](auto at) { return std::next(at)->first - std::prev(at)->first; };
  for (auto at = closest; std::next(at) != by_step.end(); ++at)
    if (gap(at) < gap(closest)) closest = at;
  by_step.erase(closest);
}

std::string warnings_block(const std::string& folder) {
  const std::vector<std::string> lines = warnings_of(folder);
  if (lines.empty()) return "";
  std::string text;
  for (const std::string& line : lines) text += escape(line) + "\n";
  return "<h2>Last warnings</h2><div class=\"card\"><p class=\"warnings\">" + text + "</p></div>";
}

}  // namespace

struct RunPage::Impl {
  std::string folder, title;
  std::vector<std::pair<std::string, std::string>> facts;
  report::RunCurves curves;

  struct Evaluated {
    Measured last;
    std::optional<Measured> best;  // nullopt if neither higher nor lower values of the metric are better
  };
  std::map<std::string, Evaluated, report::NaturalOrder> evaluated;  // key: "task.metric"
  std::map<std::string, std::string> evaluated_data;  // key: task; value: its data, such as "shapes validation, 500 samples"
  std::map<std::string, std::pair<std::int64_t, std::string>> failed;  // key: task; value: step and reason of its last failure
  std::map<std::string, std::map<std::int64_t, std::string>> readings;  // keys: sample, then step

  void evaluation(std::int64_t step, const std::string& name, double value) {
    curves.add(static_cast<double>(step), kEvaluationPrefix + name, value);
    const auto known = evaluated.find(name);
    const Measured now{step, value};
    const auto best = better_of(name, known == evaluated.end() ? std::nullopt : known->second.best, now);
    evaluated.insert_or_assign(name, Evaluated{now, best});
  }

  std::string numbers() const {
    std::string html;
    const auto card = [&](const char* key, const char* name, const auto& text_of) {
      if (const double* value = curves.last(key)) html += number_card(text_of(*value), name);
    };
    const auto gibibytes = [](double bytes) { return report::three_digits(bytes / (1 << 30)) + " GiB"; };
    const auto percent = [](double value) { return fixed(100 * value, value < 0.1 ? 1 : 0) + "%"; };
    card("loss", "loss", [](double v) { return fixed(v, 4); });
    card("lr", "learning rate", report::four_digits);
    card("grad_norm", "gradient norm", report::four_digits);
    card("logit_scale", "logit scale", [](double v) { return fixed(std::exp(v), 2); });
    card("samples_per_second", "samples/s", [](double v) { return fixed(v, v < 100 ? 1 : 0); });
    if (const double* rate = curves.last("tflops")) {
      const std::string text = format_flop_rate(*rate);
      const std::size_t space = text.find(' ');
      html += number_card(text.substr(0, space), text.substr(space + 1) + " of the model, per device");
    }
    card("mfu", "MFU", percent);
    card("wait_share", "waiting for data", percent);
    card("memory.resident_peak", "memory, peak", gibibytes);
    card("memory.device_peak", "GPU memory, peak", gibibytes);
    return html.empty() ? "" : "<div class=\"numbers\">" + html + "</div>";
  }

  std::string samples() const {
    std::string html;
    for (const auto& [sample, by_step] : readings) {
      std::string rows;
      for (const auto& [step, text] : by_step)
        rows += concat("<tr><td class=\"n\">", with_thousands(step), "</td><td>", escape(text), "</td></tr>");
      html += concat("<div class=\"card scroll\"><h3>", escape(sample),
                     "</h3><table><tr><th class=\"n\">Step</th><th>What "
                     "the model says</th></tr>",
                     rows, "</table></div>");
    }
    return html.empty() ? "" : "<h2>Samples during training</h2>" + html;
  }

  std::string failures() const {
    std::string rows;
    for (const auto& [task, last] : failed)
      rows += concat("<tr><td>", escape(task), "</td><td class=\"n\">", with_thousands(last.first), "</td><td>",
                     escape(last.second), "</td></tr>");
    if (rows.empty()) return "";
    return "<h2>Evaluation tasks that failed</h2><div class=\"card scroll\"><table><tr><th>Task</th><th "
           "class=\"n\">Step</th><th>Why</th></tr>" +
           rows + "</table></div>";
  }

  std::string evaluations() const {
    if (evaluated.empty()) return "";
    std::string rows;
    const auto cell = [&](const std::string& name, const Measured& measured) {
      const std::string file = "evaluation/" + step_folder_name(measured.step) + ".json";
      const std::string step = "step " + with_thousands(measured.step);
      return concat(escape(format_metric(name, measured.value)), "<br><small class=\"soft\">",
                    fs::exists(folder + "/" + file) ? link(file, step) : step, "</small>");
    };
    for (const auto& [name, values] : evaluated)
      rows += concat("<tr><td>", breakable(name), "</td><td class=\"n\">", cell(name, values.last), "</td><td class=\"n\">",
                     values.best ? cell(name, *values.best) : "-", "</td></tr>");
    std::string data;
    for (const auto& [task, text] : evaluated_data) data += concat(data.empty() ? "" : "; ", task, ": ", text);
    return concat("<h2>Evaluation</h2>", data.empty() ? "" : "<p class=\"soft\">" + escape(data) + "</p>",
                  "<div class=\"card scroll fit\"><table><tr><th>Metric</th><th class=\"n\">Last</th><th "
                  "class=\"n\">Best</th></tr>",
                  rows, "</table></div>", report::chart_cards(lines_of(curves.evaluations(kEvaluationPrefix))));
  }
};

RunPage::RunPage(std::string folder, std::string title, std::vector<std::pair<std::string, std::string>> facts)
    : impl_(std::make_unique<Impl>()) {
  impl_->folder = std::move(folder);
  impl_->title = std::move(title);
  impl_->facts = std::move(facts);
}

RunPage::~RunPage() = default;

void RunPage::resume_at(std::int64_t step) {
  impl_->curves = {};
  impl_->curves.set_marks(steps_of_changes(impl_->folder));
  impl_->evaluated.clear();
  impl_->evaluated_data.clear();
  impl_->failed.clear();
  impl_->readings.clear();
  const std::string evaluations = impl_->folder + "/evaluation";
  for (const std::string& name : names_in(evaluations, "step_", ".json")) {
    const auto file = nlohmann::json::parse(io::read_file(evaluations + "/" + name), nullptr, false);
    if (!file.is_object() || !file.contains("results") || file.value("step", step + 1) > step) continue;
    for (const auto& failure : file.value("failed", nlohmann::json::array()))
      if (failure.is_object()) add_evaluation_failure(file["step"], failure.value("place", ""), failure.value("reason", ""));
    for (const auto& result : file["results"]) {
      if (!result.is_object()) continue;
      const std::string task = result.value("name", result.value("task", ""));
      add_evaluation_data(task, data_and_counts(result.value("data", ""), result.value("samples", std::int64_t{0}),
                                                result.value("texts", std::int64_t{0})));
      const auto metrics = result.value("metrics", nlohmann::json::object());
      for (const auto& [metric, value] : metrics.items())
        if (value.is_number()) impl_->evaluation(file["step"], task + "." + metric, value.get<double>());
      const auto readings = result.value("readings", nlohmann::json::object());
      for (const auto& [sample, reading] : readings.items()) add_reading(file["step"], sample, reading_line(reading));
    }
  }
}

void RunPage::set_chance(std::map<std::string, double> levels) {
  impl_->curves.set_chance(std::move(levels));
}

void RunPage::add_row(const nlohmann::json& row) {
  impl_->curves.add(row);
}

void RunPage::add_evaluation(std::int64_t step, const std::vector<std::pair<std::string, double>>& metrics) {
  for (const auto& [name, value] : metrics) impl_->evaluation(step, name, value);
}

void RunPage::add_evaluation_data(const std::string& task, const std::string& data) {
  if (!data.empty()) impl_->evaluated_data[task] = data;
}

void RunPage::add_evaluation_failure(std::int64_t step, const std::string& task, const std::string& reason) {
  impl_->failed.insert_or_assign(task, std::pair(step, reason));
}

void RunPage::add_reading(std::int64_t step, const std::string& sample, const std::string& text) {
  impl_->readings[sample].insert_or_assign(step, text);
  thin(impl_->readings[sample]);
}

std::string RunPage::html(const RunStatus& status) const {
  const bool running = status.state == "running";
  const std::string head =
      running ? concat("<meta http-equiv=\"refresh\" content=\"", kReloadSeconds, "\">", kStyle) : kStyle;
  const std::string training = report::chart_cards(impl_->curves.training());
  const std::string statistics = report::chart_cards(impl_->curves.with_prefix("statistics."));
  const std::string machine = report::chart_cards(impl_->curves.machine());
  return report::page(
      impl_->title + " \u00b7 " + status.state, head,
      concat("<h1>", escape(impl_->title), "</h1>", state_block(status, utc_now()), impl_->numbers(),
             training.empty() ? "" : "<h2>Training</h2>" + training,
             statistics.empty() ? "" : "<h2>Statistics</h2>" + statistics, impl_->evaluations(), impl_->failures(), impl_->samples(),
             machine.empty() ? "" : "<h2>Speed and memory</h2>" + machine, checkpoints_block(impl_->folder),
             skipped_block(status.skipped), warnings_block(impl_->folder), "<h2>Settings</h2>",
             report::fact_card(impl_->facts), files_block(impl_->folder),
             "<footer>A training run of Tessera. Curves with more than 1,000 values show means, with the range of the "
             "averaged values as a band.</footer>"));
}

void RunPage::write(const RunStatus& status) {
  io::write_file(impl_->folder + "/run.html", html(status));
}

}  // namespace tessera
