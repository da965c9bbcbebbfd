// The parts of Trainer that evaluate the model during a run.
#include <cmath>
#include <filesystem>
#include <set>

#include <nlohmann/json.hpp>

#include "src/base/clock.h"
#include "src/base/dump_utf8.h"
#include "src/distributed/agreement.h"
#include "src/evaluation/rank_embedder.h"
#include "src/measure/machine.h"
#include "src/training/interrupt.h"
#include "src/training/run/run_evaluation.h"
#include "src/training/trainer.h"
#include <tessera/base/error.h>
#include <tessera/base/version.h>
#include <tessera/io/atomic_file.h>

namespace tessera {
namespace {

// Replaces the model's weights by the averaged weights while an object of this class exists. Does nothing if `average` is null.
class MeasuredWeights {
 public:
  explicit MeasuredWeights(Ema* average) : average_(average) {
    if (average_ != nullptr) average_->swap();
  }
  ~MeasuredWeights() {
    if (average_ != nullptr) average_->swap();
  }
  MeasuredWeights(const MeasuredWeights&) = delete;
  MeasuredWeights& operator=(const MeasuredWeights&) = delete;

 private:
  Ema* average_;
};

std::string evaluation_file(const std::string& folder, std::int64_t step) {
  return concat(folder, "/evaluation/", step_folder_name(step), ".json");
}

// Returns the metrics in the file that run_evaluation() wrote at `step`; nothing if there is no such file.
MeasuredMetrics recorded_metrics(const std::string& folder, std::int64_t step) {
  const std::string path = evaluation_file(folder, step);
  MeasuredMetrics out;
  if (!std::filesystem::exists(path)) return out;
  const auto file = nlohmann::json::parse(io::read_file(path));
  for (const auto& result : results_in(file))
    for (const auto& [name, value] : result.at("metrics").items())
      out.emplace_back(concat(result.value("name", ""), ".", name), value.is_number() ? value.get<double>() : NAN);  // JSON has no NaN
  return out;
}

}  // namespace

bool holds_evaluation(const Config& config, std::int64_t step) {
  if (config.evaluation.tasks.empty()) return true;
  const std::string path = evaluation_file(config.run.path(), step);
  if (!std::filesystem::exists(path)) return false;
  const auto file = nlohmann::json::parse(io::read_file(path), nullptr, false);
  if (!file.is_object()) return false;
  std::multiset<std::string> made, wanted;
  for (const auto& list : {results_in(file), file.value("failed", nlohmann::json::array())})
    for (const auto& task : list)
      if (task.is_object()) made.insert(task.value("task", "") + task.value("settings", nlohmann::json()).dump());
  for (const config::ModuleSettings& task : config.evaluation.tasks)
    wanted.insert(task.name + config::to_json(task.settings).dump());
  return made == wanted;
}

bool Trainer::make_up_evaluation() {
  const bool due = every(config_.evaluation.every_steps) || state_.step >= config_.training.steps;
  if (state_.step == 0 || !due) return true;
  if (run_on_rank0(group_, "looking for the evaluation", [&] { return holds_evaluation(config_, state_.step); })) {
    last_evaluated_ = state_.step;
    // The earlier session may have ended before it named the best checkpoint.
    const auto is_best = [&] { return checkpoints_.is_best(recorded_metrics(folder_, state_.step)); };
    if (run_on_rank0(group_, "looking for the evaluation", is_best)) checkpoints_.save_best(state_);
    return true;
  }
  if (state_.step < config_.training.steps)
    monitor_.log().line(concat("step ", state_.step, " was not evaluated: evaluating it now"));
  return evaluate();
}

bool Trainer::evaluate() {
  if (config_.evaluation.tasks.empty() || last_evaluated_ == state_.step) return true;
  last_evaluated_ = state_.step;
  heartbeat_.enter("the evaluation", state_.step);
  bool best = false;
  monitor_.leave_out([&] { best = evaluate_on_all_ranks(); });
  if (run_on_rank0(group_, "evaluation", [&] { return evaluation_cut_short_; })) return false;
  if (!best) return true;
  heartbeat_.enter("saving", state_.step);
  monitor_.leave_out([&] { checkpoints_.save_best(state_); });
  return true;
}

bool Trainer::evaluate_on_all_ranks() {
  const std::string& weights = config_.evaluation.weights;
  const MeasuredWeights measured(weights == "ema" ? &*run_.ema : nullptr);
  const std::shared_ptr<DualEncoder>& model = weights == "teacher" ? run_.teacher->model : run_.model;
  const MergedAdapters merged(*model);  // merges adapters in the same way as for the model file
  const DualEncoderEmbedder embedder(model, run_.tokenizer);
  EvaluationContext context = evaluation_context(run_, config_, state_.step);
  const auto measure = [&] {
    const EmbeddingRanks ranks(group_);  // its destructor ends the other ranks' work, also if a task throws
    const RankEmbedder shared(embedder, ranks, context.threads, /*shares_loss=*/true);
    context.ranks = &shared;
    return run_evaluation(shared, context);
  };
  return run_on_rank0(group_, "evaluation", measure, [&] { serve_embeddings(group_, embedder, context); });
}

bool Trainer::run_evaluation(const Embedder& embedder, const EvaluationContext& context) {
  monitor_.log().clear();
  MeasuredMetrics all;
  auto results = nlohmann::json::array(), failed = nlohmann::json::array();
  for (std::size_t i = 0; i < config_.evaluation.tasks.size(); ++i) {
    const auto outcome = try_task(config_.evaluation.tasks, i, "evaluation.tasks", embedder, context);
    if (const auto* result = std::get_if<TaskResult>(&outcome)) {
      const std::string name = task_name(config_.evaluation.tasks, i);
      results.push_back(to_json(*result));
      results.back()["name"] = name;
      monitor_.log().line(concat("step ", state_.step, ": ", summary_line(*result)));
      MeasuredMetrics metrics;
      for (const auto& [metric, value] : result->metrics) metrics.emplace_back(concat(name, ".", metric), value);
      monitor_.evaluated(state_, metrics, results.back());
      all.insert(all.end(), metrics.begin(), metrics.end());
    } else {
      const auto& failure = std::get<TaskFailure>(outcome);
      monitor_.log().evaluation_failed(state_.step, failure.place, failure.reason);
      failed.push_back(to_json(failure));
    }
    evaluation_cut_short_ = interrupted() != 0 && i + 1 < config_.evaluation.tasks.size();
    if (evaluation_cut_short_) return false;
  }
  const nlohmann::json file = {{"step", state_.step},       {"weights", config_.evaluation.weights},
                               {"version", version()},      {"commit", commit()},
                               {"date", utc_now()},         {"device", machine_name(run_.device)},
                               {"tasks", results},          {"failed", failed}};
  try {
    io::write_file(evaluation_file(folder_, state_.step), dump_utf8(file, 2) + "\n");
  } catch (const UserError& error) {
    monitor_.log().error(concat("step ", state_.step, ": the evaluation is not saved: ", error.what(), "; training continues"));
  }
  monitor_.show(state_);
  // Before the first step nothing has been trained, so these weights never count as the best.
  return state_.step > 0 && checkpoints_.is_best(all);
}

}  // namespace tessera
