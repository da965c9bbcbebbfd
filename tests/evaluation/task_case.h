#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "src/report/cards.h"
#include "tests/support/contains.h"
#include "tests/support/error_of.h"
#include "tests/support/temporary_folder.h"
#include <tessera/evaluation/task.h>
#include <tessera/objectives/objective.h>

/// Code that the tests of evaluation tasks share.
namespace tessera {

/// A RunLoss that only passes an objective to the tasks.
class KeptObjective final : public RunLoss {
 public:
  explicit KeptObjective(std::shared_ptr<Objective> objective) : objective_(std::move(objective)) {}
  void check(const LossBatches&) const override {}
  TaskResult measure(const LossBatches&) const override { return {}; }
  std::shared_ptr<Objective> objective() const override { return objective_; }

 private:
  std::shared_ptr<Objective> objective_;
};

using Metric = std::pair<std::string, double>;
using Metrics = std::vector<Metric>;

/// Returns a task, or another module, from its YAML.
inline config::ModuleSettings task_of(const std::string& yaml) {
  return config::Value<config::ModuleSettings>::read(config::parse_yaml(yaml, "task.yaml"), "", {});
}

inline TaskResult check_and_run(const config::ModuleSettings& task, const Embedder& embedder, const EvaluationContext& context) {
  check_task(task, embedder, context);
  return run_task(task, embedder, context);
}

inline std::map<std::string, double> by_name(const TaskResult& result) {
  return {result.metrics.begin(), result.metrics.end()};
}

/// Returns the value of a metric, which must exist.
inline double metric(const TaskResult& result, const std::string& name) {
  return by_name(result).at(name);
}

/// Returns the card of this title; an empty object if there is none.
inline nlohmann::json card_of(const TaskResult& result, const std::string& title) {
  for (const auto& card : result.cards)
    if (card->value("title", "") == title) return *card;
  return nlohmann::json::object();
}

/// Returns the sheets of the card of this title (src/report/cards.h).
inline nlohmann::json sheets_of(const TaskResult& result, const std::string& title) {
  return card_of(result, title).value("items", nlohmann::json::array());
}

/// Returns the source of a square image of one gray level in a card.
inline std::string gray_source(int level, std::int64_t side = 16) {
  return report::data_uri({side, side, std::vector<std::uint8_t>(static_cast<std::size_t>(3 * side * side), static_cast<std::uint8_t>(level))});
}

/// Expects each metric to equal the value that follows from the outcomes of its samples.
inline void expect_outcomes_give_metrics(const TaskResult& result, double tolerance = 1e-12) {
  for (const report::Outcomes& outcomes : result.outcomes)
    EXPECT_NEAR(report::value_of(outcomes), metric(result, outcomes.metric), tolerance) << outcomes.metric;
}

}  // namespace tessera
