#include "src/evaluation/earlier_results.h"

#include <algorithm>
#include <filesystem>

#include <nlohmann/json.hpp>

#include <tessera/base/text.h>
#include <tessera/io/atomic_file.h>

namespace tessera {
namespace {

namespace fs = std::filesystem;

bool same_tasks(const nlohmann::json& results, const std::vector<config::ModuleSettings>& tasks) {
  const auto list = results.find("tasks");
  if (list == results.end() || !list->is_array() || list->size() != tasks.size()) return false;
  for (std::size_t i = 0; i < tasks.size(); ++i)
    if (list->at(i).value("task", "") != tasks[i].name ||
        list->at(i).value("settings", nlohmann::json()) != config::to_json(tasks[i].settings))
      return false;
  return true;
}

bool same_origin(const nlohmann::json& results, const nlohmann::json& origin) {
  const auto keys = {"weights", "model_settings", "source", "train", "batch_size", "version", "commit"};
  return std::all_of(keys.begin(), keys.end(),
                     [&](const char* key) { return results.contains(key) && results.at(key) == origin.at(key); });
}

}  // namespace

std::string earlier_results(const std::string& usual, const nlohmann::json& origin,
                            const std::vector<config::ModuleSettings>& tasks) {
  std::string found, folder = usual;
  std::error_code ignored;
  for (int number = 2; fs::is_regular_file(folder + "/results.json", ignored); ++number) {
    const auto json = nlohmann::json::parse(io::read_file(folder + "/results.json"), nullptr, false);
    const bool whole = json.is_object() && !json.contains("slots") && json.contains("failed") && json["failed"].empty();
    if (whole && same_origin(json, origin) && same_tasks(json, tasks) &&
        fs::is_regular_file(folder + "/samples.json", ignored))
      found = folder;
    folder = concat(usual, "-", number);
  }
  return found;
}

}  // namespace tessera
