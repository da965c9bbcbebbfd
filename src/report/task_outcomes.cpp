#include <cmath>

#include <nlohmann/json.hpp>

#include <tessera/base/error.h>
#include <tessera/report/task_outcomes.h>

namespace tessera::report {
namespace {

using Json = nlohmann::json;

/// Writes whole numbers without a decimal point, because most outcomes are 0 or 1.
Json number(double value) {
  const double whole = std::round(value);
  return whole == value && std::abs(whole) < 1e15 ? Json(static_cast<std::int64_t>(whole)) : Json(value);
}

Json metric_json(const Outcomes& outcomes) {
  Json parts = Json::array(), wholes = Json::array(), sample = Json::array(), group = Json::array();
  bool plain_wholes = true, plain_samples = true, one_group = true;
  for (std::size_t i = 0; i < outcomes.entries.size(); ++i) {
    const Outcomes::Entry& entry = outcomes.entries[i];
    parts.push_back(number(entry.part));
    wholes.push_back(number(entry.whole));
    sample.push_back(entry.sample);
    group.push_back(entry.group);
    plain_wholes = plain_wholes && entry.whole == 1;
    plain_samples = plain_samples && entry.sample == static_cast<std::int64_t>(i);
    one_group = one_group && entry.group == 0;
  }
  Json out = {{"parts", std::move(parts)}};
  if (!plain_wholes) out["wholes"] = std::move(wholes);
  if (!plain_samples) out["sample"] = std::move(sample);
  if (!one_group) out["group"] = std::move(group);
  return out;
}

Outcomes read_metric(const std::string& name, const Json& json, std::int64_t samples) {
  Outcomes out{name, {}};
  const Json& parts = json.at("parts");
  for (std::size_t i = 0; i < parts.size(); ++i) {
    Outcomes::Entry entry{static_cast<std::int64_t>(i), parts.at(i).get<double>()};
    if (json.contains("wholes")) entry.whole = json.at("wholes").at(i).get<double>();
    if (json.contains("sample")) entry.sample = json.at("sample").at(i).get<std::int64_t>();
    if (json.contains("group")) entry.group = json.at("group").at(i).get<std::int64_t>();
    if (entry.sample < 0 || entry.sample >= samples || entry.group < 0 || entry.group > 1 << 24)
      throw std::out_of_range("sample or group");
    out.entries.push_back(entry);
  }
  return out;
}

}  // namespace

std::map<std::string, Interval> compute_intervals(const TaskOutcomes& outcomes) {
  std::map<std::string, Interval> out;
  if (outcomes.samples < 2) return out;
  const auto values = bootstrap_values(outcomes.metrics, outcomes.samples);
  for (std::size_t m = 0; m < values.size(); ++m)
    if (const auto interval = middle(values[m])) out.emplace(outcomes.metrics[m].metric, *interval);
  return out;
}

nlohmann::json to_json(const std::vector<TaskOutcomes>& tasks) {
  Json list = Json::array();
  for (const TaskOutcomes& task : tasks) {
    Json metrics = Json::object();
    for (const Outcomes& outcomes : task.metrics) metrics[outcomes.metric] = metric_json(outcomes);
    list.push_back({{"task", task.task},
                    {"data", task.data},
                    {"mark", task.mark},
                    {"samples", task.samples},
                    {"metrics", std::move(metrics)}});
  }
  return {{"tasks", std::move(list)}};
}

std::vector<TaskOutcomes> task_outcomes(const nlohmann::json& json, const std::string& path) {
  std::vector<TaskOutcomes> out;
  try {
    for (const Json& task : json.at("tasks")) {
      TaskOutcomes outcomes{task.at("task"), task.at("data"), task.at("mark"), task.at("samples"), {}};
      for (const auto& [name, metric] : task.at("metrics").items())
        outcomes.metrics.push_back(read_metric(name, metric, outcomes.samples));
      out.push_back(std::move(outcomes));
    }
  } catch (const std::exception&) {
    user_error(path, ": holds no outcomes of samples in the format of `evaluate`: measure again, or remove the file");
  }
  return out;
}

}  // namespace tessera::report
