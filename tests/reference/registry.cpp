#include <algorithm>
#include <filesystem>

#include "tests/reference/all_runners.h"
#include "tests/reference/runner.h"
#include <tessera/base/error.h>

namespace tessera::probe {

Runners core_runners() {
  Runners runners;
  add_caption_runners(runners);
  add_flair_runners(runners);
  add_metric_runners(runners);
  add_model_runners(runners);
  add_objective_runners(runners);
  add_pyramidclip_runners(runners);
  add_superclip_runners(runners);
  add_text_group_runners(runners);
  add_training_runners(runners);
  return runners;
}

void Runners::add(const std::string& module, Runner runner) {
  if (!runners_.emplace(module, std::move(runner)).second) user_error("probe module ", module, " is registered twice");
}

void Runners::add_lines(const std::string& stem, LinesRunner runner) {
  if (!lines_.emplace(stem, std::move(runner)).second) user_error("probe module ", stem, " is registered twice");
}

const Runner* Runners::find(const std::string& module) const {
  const auto found = runners_.find(module);
  return found == runners_.end() ? nullptr : &found->second;
}

const LinesRunner* Runners::find_lines(const std::string& path) const {
  const std::string stem = std::filesystem::path(path).stem().string();
  for (const auto& [name, runner] : lines_)
    if (stem == name || stem.rfind(name + "_", 0) == 0) return &runner;
  return nullptr;
}

std::vector<std::string> Runners::names() const {
  std::vector<std::string> names;
  for (const auto& [name, runner] : runners_) names.push_back(name);
  for (const auto& [name, runner] : lines_) names.push_back(name);
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace tessera::probe
