#include "src/training/checkpoint/best_checkpoint.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iomanip>
#include <limits>
#include <sstream>

#include "src/training/checkpoint/checkpoint.h"
#include "src/training/run/run_evaluation.h"
#include <tessera/base/error.h>
#include <tessera/io/atomic_file.h>
#include <tessera/report/task_result.h>

namespace tessera {
namespace {

constexpr const char* kBest = "/best";

std::vector<std::string> words_of(const std::string& file) {
  std::error_code missing;
  if (!std::filesystem::is_regular_file(file, missing)) return {};
  std::istringstream text(io::read_file(file));
  std::vector<std::string> words;
  for (std::string word; text >> word;) words.push_back(word);
  return words;
}

}  // namespace

BestFile::BestFile(const std::string& folder, const KeepBestSettings& settings)
    : folder_(folder), rule_(concat(settings.metric, " ", greater_is_better(settings) ? "max" : "min")) {}

std::optional<BestCheckpoint> BestFile::read() const {
  const std::vector<std::string> words = words_of(folder_ + kBest);
  const std::string checkpoint = best_checkpoint_in(folder_);
  if (checkpoint.empty() || words.size() != 4 || words[1] + " " + words[2] != rule_) return std::nullopt;
  return BestCheckpoint{step_of(checkpoint), std::strtod(words[3].c_str(), nullptr)};
}

void BestFile::write(const BestCheckpoint& best) const {
  std::ostringstream value;
  value << std::setprecision(std::numeric_limits<double>::max_digits10) << best.value;
  io::write_file(folder_ + kBest, concat(step_folder_name(best.step), " ", rule_, " ", value.str(), "\n"));
}

std::string best_checkpoint_in(const std::string& folder) {
  const std::vector<std::string> words = words_of(folder + kBest);
  if (words.empty() || !words[0].starts_with("step_")) return {};
  const std::string checkpoint = folder + "/" + words[0];
  std::error_code error;
  return std::filesystem::is_directory(checkpoint, error) ? checkpoint : "";
}

bool greater_is_better(const KeepBestSettings& settings) {
  if (settings.mode) return *settings.mode == "max";
  return usual_rule(settings.metric.substr(settings.metric.find('.') + 1)).better != MetricRule::Better::lower;
}

std::optional<double> judged_value(const KeepBestSettings& settings, const MeasuredMetrics& measured) {
  const auto found = std::find_if(measured.begin(), measured.end(),
                                  [&](const auto& each) { return each.first == settings.metric; });
  if (found == measured.end()) {
    std::vector<std::string> names;
    for (const auto& [name, value] : measured) names.push_back(name);
    throw UserError(not_measured(settings.metric, names));
  }
  return std::isfinite(found->second) ? std::optional(found->second) : std::nullopt;
}

}  // namespace tessera
