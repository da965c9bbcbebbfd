#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include <tessera/report/bootstrap.h>

namespace tessera::report {

/// Of one task, what its samples contribute to its metrics.
struct TaskOutcomes {
  std::string task, data;
  std::string mark;  // of the samples' keys in their order: two models with the same one looked at the same samples
  std::int64_t samples = 0;
  std::vector<Outcomes> metrics;
};

/// The 95 % intervals of the metrics that have one.
std::map<std::string, Interval> intervals_of(const TaskOutcomes& outcomes);

/// What samples.json beside results.json holds: {"tasks": [{"task", "data", "mark", "samples", "metrics": {name: {"parts",
/// ...}}}]}; "wholes", "sample" and "group" are there where they are not 1, the index and 0.
nlohmann::json to_json(const std::vector<TaskOutcomes>& tasks);

/// The same back. Throws UserError, which names `path`, for anything else.
std::vector<TaskOutcomes> task_outcomes(const nlohmann::json& json, const std::string& path);

}  // namespace tessera::report
