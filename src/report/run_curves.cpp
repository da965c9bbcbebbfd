#include "src/report/run_curves.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include <nlohmann/json.hpp>

#include <tessera/base/text.h>
#include <tessera/io/atomic_file.h>

namespace tessera::report {
namespace {

/// Returns the number with six significant digits, as an integer if it is whole, so that its text is short.
nlohmann::json short_number(double value) {
  constexpr double kGreatestWhole = 1e15;
  if (std::abs(value) < kGreatestWhole && value == std::floor(value)) return static_cast<std::int64_t>(value);
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", value);
  return std::strtod(text, nullptr);
}

}  // namespace

void ThinCurve::add(double step, double value) {
  if (!std::isfinite(value)) return;
  last_ = value;
  if (stretches_.empty() || stretches_.back().count == per_stretch_) {
    if (stretches_.size() == most_) join_pairs();
    stretches_.push_back({step, value, value, value, 1});
    return;
  }
  Stretch& stretch = stretches_.back();
  stretch.steps += step;
  stretch.values += value;
  stretch.low = std::min(stretch.low, value);
  stretch.high = std::max(stretch.high, value);
  ++stretch.count;
}

void ThinCurve::join_pairs() {
  std::vector<Stretch> joined;
  for (std::size_t i = 0; i < stretches_.size(); i += 2) {
    Stretch stretch = stretches_[i];
    if (i + 1 < stretches_.size()) {
      const Stretch& next = stretches_[i + 1];
      stretch = {stretch.steps + next.steps, stretch.values + next.values, std::min(stretch.low, next.low),
                 std::max(stretch.high, next.high), stretch.count + next.count};
    }
    joined.push_back(stretch);
  }
  stretches_ = std::move(joined);
  per_stretch_ *= 2;
}

Curve ThinCurve::curve() const {
  Curve curve;
  for (const Stretch& stretch : stretches_) {
    const auto count = static_cast<double>(stretch.count);
    curve.points.emplace_back(stretch.steps / count, stretch.values / count);
    if (per_stretch_ > 1) curve.ranges.emplace_back(stretch.low, stretch.high);
  }
  return curve;
}

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

nlohmann::json RunCurves::to_json() const {
  nlohmann::json steps = nlohmann::json::array(), values = nlohmann::json::object();
  std::map<std::vector<double>, std::size_t> places;  // curves of the same rows have the same steps, which are written once
  for (const auto& [name, thin] : curves_) {
    if (thin.empty()) continue;
    const Curve curve = thin.curve();
    std::vector<double> own;
    nlohmann::json out;
    for (const auto& [step, value] : curve.points) {
      own.push_back(step);
      out["y"].push_back(short_number(value));
    }
    for (const auto& [low, high] : curve.ranges) {
      out["low"].push_back(short_number(low));
      out["high"].push_back(short_number(high));
    }
    const auto [place, added] = places.emplace(own, places.size());
    if (added) {
      steps.emplace_back(nlohmann::json::array());
      for (const double step : own) steps.back().push_back(short_number(step));
    }
    out["steps"] = place->second;
    values[name] = std::move(out);
  }
  return {{"steps", steps}, {"values", values}};
}

const double* RunCurves::last(const std::string& name) const {
  const auto found = curves_.find(name);
  return found == curves_.end() || found->second.empty() ? nullptr : &found->second.last();
}

RunCurves read_run_curves(const std::string& run_folder) {
  const std::string path = run_folder + "/metrics.jsonl";
  RunCurves curves;
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return curves;
  for (const std::string& line : split(io::read_file(path), '\n')) curves.add(nlohmann::json::parse(line, nullptr, false));
  return curves;
}

}  // namespace tessera::report
