#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include <tessera/report/bootstrap.h>

namespace tessera::report {

/// The contributions of single samples to the metrics of one task.
struct TaskOutcomes {
  std::string task, data;
  std::string mark;  // hash of the samples' keys in order; equal for two models measured on the same samples
  std::int64_t samples = 0;
  std::vector<Outcomes> metrics;
};

/// Returns the 95 % intervals of the metrics that have one.
std::map<std::string, Interval> compute_intervals(const TaskOutcomes& outcomes);

/// Returns the content of samples.json: {"tasks": [{"task", "data", "mark", "samples", "metrics": {name: {"parts", "wholes", "sample",
/// "group"}}}]}. "wholes" is left out if all its values are 1, "sample" if it is 0, 1, 2, ..., and "group" if all its values are 0.
nlohmann::json to_json(const std::vector<TaskOutcomes>& tasks);

/// Converts the content of samples.json back to outcomes. Throws UserError naming `path` if the JSON has another form.
std::vector<TaskOutcomes> task_outcomes(const nlohmann::json& json, const std::string& path);

}  // namespace tessera::report
