#include "src/report/evaluation_page.h"

#include <nlohmann/json.hpp>

#include "src/report/page.h"

namespace tessera::report {
namespace {

/// Returns the settings of the task. If the task names no data, the data of the suite or the command line are filled in.
config::Node with_data(config::Node settings, const ReportHead& head) {
  for (const auto& [key, given] : head.data)
    if (const config::Node* own = settings.find(key); own != nullptr && own->is_null()) settings.set(key, given);
  return settings;
}

/// Returns the result with what only a page holds: the cards, the order of the metrics, and the settings as YAML.
nlohmann::json shown(const TaskResult& result, const ReportHead& head) {
  nlohmann::json out = to_json(result);
  out["metric_names"] = nlohmann::json::array();
  for (const auto& [name, value] : result.metrics) out["metric_names"].push_back(name);
  out["cards"] = nlohmann::json::array();
  for (const auto& card : result.cards) out["cards"].push_back(*card);
  out["data_text"] = data_and_counts(result.data, result.samples, result.texts);
  out["settings_text"] = config::to_yaml(with_data(result.settings, head));
  return out;
}

}  // namespace

std::string evaluation_page(const ReportHead& head, const std::vector<TaskResult>& results, const std::vector<TaskFailure>& failures) {
  nlohmann::json data = {{"kind", "evaluation"},      {"title", head.title}, {"facts", head.facts}, {"curves", head.curves.to_json()},
                         {"results", nlohmann::json::array()}, {"failed", nlohmann::json::array()}};
  for (const TaskResult& result : results) data["results"].push_back(shown(result, head));
  for (const TaskFailure& failure : failures) data["failed"].push_back(to_json(failure));
  return page(data);
}

}  // namespace tessera::report
