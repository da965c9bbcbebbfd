#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <optional>

#include <nlohmann/json.hpp>

#include "src/base/clock.h"
#include "src/report/page.h"
#include "src/report/run_curves.h"
#include "src/training/checkpoint/checkpoint.h"
#include "src/training/log/run_changes.h"
#include "src/training/log/run_page.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/io/atomic_file.h>
#include <tessera/report/task_result.h>

namespace tessera {

namespace fs = std::filesystem;

namespace {

using Json = nlohmann::json;

constexpr int kReloadSeconds = 30;
constexpr std::size_t kWarnings = 12;
constexpr std::size_t kReadings = 6;  // maximum number of steps whose output is shown for a sample (TaskResult::readings)

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

// Returns those of the files that the run's folder has.
std::vector<std::string> present(const std::string& folder, std::vector<std::string> files) {
  std::erase_if(files, [&](const std::string& file) { return !fs::exists(folder + "/" + file); });
  return files;
}

// Returns the checkpoints with their files, the newest first.
Json checkpoints_in(const std::string& folder) {
  auto out = Json::array();
  std::vector<std::string> names = names_in(folder, "step_", "");
  for (auto name = names.rbegin(); name != names.rend(); ++name)
    out.push_back({{"name", *name},
                   {"files", present(folder + "/" + *name, {"model.safetensors", "ema.safetensors", "teacher.safetensors",
                                                            "state.safetensors", "manifest.json"})}});
  return out;
}

}  // namespace

// Returns the better of two values of a metric. Returns the earlier value if the values are equal, if the new value is not finite, or if
// neither higher nor lower values of the metric are better.
std::optional<RunPage::Measured> RunPage::better_of(const MetricRule& rule, const std::optional<Measured>& before, const Measured& now) {
  if (rule.better == MetricRule::Better::neither || !std::isfinite(now.value)) return before;
  if (!before) return now;
  const bool improved = rule.better == MetricRule::Better::higher ? now.value > before->value : now.value < before->value;
  return improved ? now : before;
}

Json RunPage::make_json(const Measured& measured) const {
  const std::string file = "evaluation/" + step_folder_name(measured.step) + ".json";
  Json out = {{"step", measured.step}, {"value", measured.value}};
  if (fs::exists(folder_ + "/" + file)) out["file"] = file;
  return out;
}

void RunPage::resume_at(std::int64_t step) {
  curves_ = {};
  marks_ = marks_of_changes(folder_);
  evaluated_.clear();
  evaluated_data_.clear();
  failed_.clear();
  readings_.clear();
  const std::string evaluations = folder_ + "/evaluation";
  for (const std::string& name : names_in(evaluations, "step_", ".json")) {
    const Json file = Json::parse(io::read_file(evaluations + "/" + name), nullptr, false);
    if (!file.is_object() || file.value("step", step + 1) > step) continue;
    for (const Json& failure : file.value("failed", Json::array()))
      if (failure.is_object()) add_evaluation_failure(file["step"], failure.value("place", ""), failure.value("reason", ""));
    for (const Json& result : results_in(file)) add_result(file["step"], result);
  }
}

void RunPage::add_result(std::int64_t step, const nlohmann::json& result) {
  const std::string task = result.value("name", result.value("task", ""));
  const std::string data =
      data_and_counts(result.value("data", ""), result.value("samples", std::int64_t{0}), result.value("texts", std::int64_t{0}));
  if (!data.empty()) evaluated_data_[task] = data;
  const Json metrics = result.value("metrics", Json::object());
  for (const auto& [metric, json] : metrics.items()) {
    const double value = json.is_number() ? json.get<double>() : std::nan("");
    const std::string name = task + "." + metric;
    curves_.add(static_cast<double>(step), "evaluation." + name, value);
    const auto known = evaluated_.find(name);
    const Measured now{step, value};
    const MetricRule rule = rule_in(result, metric);
    const auto best = better_of(rule, known == evaluated_.end() ? std::nullopt : known->second.best, now);
    evaluated_.insert_or_assign(name, Evaluated{rule, now, best});
  }
  const Json readings = result.value("readings", Json::object());
  for (const auto& [sample, reading] : readings.items()) {
    readings_[sample].insert_or_assign(step, reading_line(reading));
    thin(readings_[sample]);
  }
}

std::string RunPage::html(const RunStatus& status) const {
  const Json state = {{"state", status.state},       {"good", status.good},         {"note", status.note},
                      {"step", status.step},         {"samples", status.samples},   {"total_steps", status.total_steps},
                      {"seconds", status.seconds},   {"skipped", status.skipped},   {"seconds_left", status.seconds_left},
                      {"written", utc_now()},        {"reload_seconds", kReloadSeconds}};
  Json out = {{"kind", "run"},
              {"title", title_},
              {"status", state},
              {"facts", facts_},
              {"curves", curves_.to_json()},
              {"marks", marks_},
              {"chance", chance_},
              {"evaluated", Json::array()},
              {"evaluated_data", evaluated_data_},
              {"failed", Json::array()},
              {"readings", readings_},
              {"checkpoints", checkpoints_in(folder_ + "/checkpoints")},
              {"warnings", warnings_of(folder_)},
              {"files", present(folder_, {"config.yaml", "metrics.jsonl", "metrics.csv", "log.txt"})}};
  for (const std::string& trace : names_in(folder_, "trace_", ".json")) out["files"].push_back(trace);
  for (const auto& [name, values] : evaluated_) {
    Json& each = out["evaluated"].emplace_back(to_json(values.rule));
    each["name"] = name;
    each["last"] = make_json(values.last);
    if (values.best) each["best"] = make_json(*values.best);
  }
  for (const auto& [task, last] : failed_) out["failed"].push_back({{"task", task}, {"step", last.first}, {"reason", last.second}});
  return report::page(out);
}

void RunPage::write(const RunStatus& status) {
  io::write_file(folder_ + "/run.html", html(status));
}

}  // namespace tessera
