#include "src/report/run_curves.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <vector>

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
