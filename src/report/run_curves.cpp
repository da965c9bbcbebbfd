#include "src/report/run_curves.h"

#include <array>
#include <set>

#include <nlohmann/json.hpp>

#include "src/report/metric.h"

namespace tessera::report {
namespace {

constexpr double kGibibyte = 1024.0 * 1024.0 * 1024.0;

void drop_empty(std::vector<CurveChart>& charts) {
  std::erase_if(charts, [](const CurveChart& chart) { return chart.curves.empty(); });
}

}  // namespace

void RunCurves::add(const nlohmann::json& row) {
  if (!row.is_object() || !row.contains("step") || !row["step"].is_number()) return;
  const double step = row["step"].get<double>();
  for (const auto& [key, value] : row.items()) {
    if (value.is_number() && key != "step") add(step, key, value.get<double>());
    if (!value.is_object()) continue;
    for (const auto& [name, part] : value.items())
      if (part.is_number()) add(step, key + "." + name, part.get<double>());
  }
}

void RunCurves::add(double step, const std::string& name, double value) {
  curves_[name].add(step, value);
}

std::vector<std::string> RunCurves::keys() const {
  std::vector<std::string> out;
  for (const auto& [key, curve] : curves_)
    if (!curve.empty()) out.push_back(key);
  return out;
}

Curve RunCurves::curve(const std::string& key, const std::string& name, double factor) const {
  const auto found = curves_.find(key);
  if (found == curves_.end()) return {name, {}};
  Curve curve = found->second.curve(name);
  for (auto& [step, value] : curve.points) value *= factor;
  for (auto& [low, high] : curve.ranges) low *= factor, high *= factor;
  return curve;
}

CurveChart RunCurves::chart(const std::string& title, const std::vector<Line>& lines) const {
  CurveChart out{.title = title, .curves = {}, .marks = marks_};
  for (const Line& line : lines) {
    Curve drawn = curve(line.key, line.name, line.factor);
    if (!drawn.points.empty()) out.curves.push_back(std::move(drawn));
  }
  return out;
}

void RunCurves::add_chance(CurveChart& chart, const std::vector<Line>& terms, bool common) const {
  if (chart.curves.empty()) return;
  std::set<double> levels;
  for (const Line& term : terms) {
    auto found = chance_.find(term.name);
    if (found == chance_.end()) found = chance_.find(term.name.substr(term.name.find('.') + 1));  // without the name of a sum's objective
    if (found != chance_.end())
      levels.insert(found->second);
    else if (common)
      return;
  }
  if (common && levels.size() != 1) return;
  const auto& points = chart.curves.front().points;
  for (const double level : levels)
    chart.curves.push_back({"chance", {{points.front().first, level}, {points.back().first, level}}});
}

std::vector<CurveChart> RunCurves::training() const {
  std::vector<CurveChart> charts = {chart("Loss", {{"loss", "loss"}})};
  std::vector<Line> terms;
  for (const auto& [name, curve] : curves_)
    if (name.starts_with("terms.")) terms.push_back({name, name.substr(6)});
  add_chance(charts.back(), terms, /*common=*/true);
  if (terms.size() > 1) {
    charts.push_back(chart("Loss terms", terms));
    add_chance(charts.back(), terms, /*common=*/false);
  }
  charts.push_back(chart("Learning rate", {{"lr", "lr"}}));
  charts.push_back(chart("Gradient norm", {{"grad_norm", "all"},
                                           {"grad_norms.image", "image tower"},
                                           {"grad_norms.text", "text tower"},
                                           {"grad_norms.objective", "objective"}}));
  charts.push_back(chart("Logit scale (its logarithm)", {{"logit_scale", "logit_scale"}}));
  charts.push_back(chart("Logit bias", {{"logit_bias", "logit_bias"}}));
  drop_empty(charts);
  return charts;
}

std::vector<CurveChart> RunCurves::machine() const {
  std::vector<CurveChart> charts = {
      chart("Samples per second", {{"samples_per_second", "samples/s"}}),
      chart("Model FLOPs utilization (MFU), %", {{"mfu", "MFU", 100}}),
      chart("Time waiting for data, %", {{"wait_share", "wait", 100}}),
      chart("Memory of rank 0, GiB", {{"memory.resident", "resident", 1 / kGibibyte},
                                      {"memory.resident_peak", "resident, peak", 1 / kGibibyte},
                                      {"memory.device_peak", "GPU, peak", 1 / kGibibyte}})};
  drop_empty(charts);
  return charts;
}

std::vector<CurveChart> RunCurves::with_prefix(const std::string& prefix) const {
  std::map<std::string, std::vector<Line>> by_title;
  for (const auto& [key, curve] : curves_) {
    if (!key.starts_with(prefix)) continue;
    const std::string name = key.substr(prefix.size());
    const std::size_t point = name.rfind('.');
    by_title[name.substr(0, point)].push_back({key, name.substr(point + 1)});
  }
  std::vector<CurveChart> charts;
  for (const auto& [title, lines] : by_title) charts.push_back(chart(title, lines));
  return charts;
}

std::vector<CurveChart> RunCurves::evaluations(const std::string& prefix) const {
  std::vector<CurveChart> charts;
  std::map<std::string, std::array<std::vector<Line>, 2>> by_task;  // key: task; values: lines of metrics in %, lines of other metrics
  for (const auto& [key, curve] : curves_) {
    if (!key.starts_with(prefix)) continue;
    const std::string name = key.substr(prefix.size());
    const std::size_t point = name.find('.');
    const std::string metric = name.substr(point + 1);
    const bool share = is_share(metric);
    by_task[name.substr(0, point)][share ? 0 : 1].push_back({key, metric, share ? 100.0 : 1.0});
  }
  for (const auto& [task, lines] : by_task) {
    charts.push_back(chart(task, lines[0]));
    charts.back().unit = "%";
    charts.push_back(chart(task, lines[1]));
  }
  drop_empty(charts);
  return charts;
}

const double* RunCurves::last(const std::string& name) const {
  const auto found = curves_.find(name);
  return found == curves_.end() || found->second.empty() ? nullptr : &found->second.last();
}

}  // namespace tessera::report
