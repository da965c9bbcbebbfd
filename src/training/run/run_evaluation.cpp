#include "src/training/run/run_evaluation.h"

#include <algorithm>

#include "src/evaluation/embedder_views.h"
#include "src/models/text_conditioned_pool.h"
#include "src/training/run/run_loss.h"
#include "src/training/run/teacher.h"
#include <tessera/base/text.h>
#include <tessera/evaluation/inference.h>

namespace tessera {
namespace {

// If the task needs some of the run's data and these data cannot be read, returns the reason. Otherwise returns an empty string.
std::string missing_for(const config::ModuleSettings& task, const TrainingRun& run, const Unreadable& unreadable) {
  const auto is_the_runs = [&](const char* key) {
    const config::Node* node = task.settings.find(key);
    return node != nullptr && node->is_null();
  };
  if (!unreadable.validation.empty() && is_the_runs("source")) return unreadable.validation;
  if (!unreadable.train.empty() && is_the_runs("train")) return unreadable.train;
  if (unreadable.tokenizer.empty() || !run.model->has_text_tower()) return {};
  const bool by_objective = task.name == "validation_loss" && !run.needs.texts.empty();
  const bool texts = by_objective || evaluation_tasks().make(task, task.name)->uses_texts();
  return texts ? unreadable.tokenizer : "";
}

// If the names of the tasks' metrics are known in advance, checks that the metric of checkpoint.keep_best is among these names.
void check_judged_metric(const Config& config, const Embedder& embedder, const std::vector<std::int64_t>& widths) {
  // Without a tokenizer, the tasks do not know the names of all their metrics, so the metric cannot be checked.
  if (!config.checkpoint.keep_best || !embedder.takes_texts()) return;
  const std::string& metric = config.checkpoint.keep_best->metric;
  std::vector<std::string> names;
  for (std::size_t i = 0; i < config.evaluation.tasks.size(); ++i) {
    const config::ModuleSettings& task = config.evaluation.tasks[i];
    const std::string own = task_name(config.evaluation.tasks, i);
    if (own != metric.substr(0, metric.find('.'))) continue;
    for (const std::string& name : evaluation_tasks().make(task, task.name)->metric_names(embedder)) {
      names.push_back(concat(own, ".", name));
      for (const std::int64_t width : widths) names.push_back(concat(own, ".", CutEmbedder(embedder, width).prefix(), name));
    }
  }
  if (!names.empty() && !contains(names, metric)) throw UserError(not_measured(metric, names));
}

// Returns the objective's first pool, in alphabetical order of names, or null if the objective has no pool. The evaluation of a checkpoint
// uses the same pool.
std::shared_ptr<TextConditionedPool> pool_of(const Objective& objective) {
  std::map<std::string, std::shared_ptr<TextConditionedPool>> pools;
  for (const auto& item : objective.named_modules("", /*include_self=*/false))
    if (auto pool = std::dynamic_pointer_cast<TextConditionedPool>(item.value())) pools.emplace(item.key(), std::move(pool));
  return pools.empty() ? nullptr : pools.begin()->second;
}

}  // namespace

std::string not_measured(const std::string& metric, const std::vector<std::string>& names) {
  const std::string near = nearest_name(metric, names);
  return concat("checkpoint.keep_best.metric: there is no metric called ", metric,
                near.empty() ? "" : concat(": did you mean ", near, "?"),
                "; measured: ", names.empty() ? "nothing" : join_names(names));
}

EvaluationContext evaluation_context(const TrainingRun& run, const Config& config, std::int64_t step) {
  EvaluationContext context;
  context.source = run.validation;
  context.train_source = run.train;
  context.loss = run_loss(run, config, step);
  const bool of_teacher = config.evaluation.weights == "teacher" && run.teacher;
  const Objective& objective = of_teacher ? *run.teacher->objective : *run.objective;
  context.pool = pool_of(objective);
  context.logit_scale = logit_scale_of(objective_state(objective));
  context.widths = objective.nested_widths();
  context.batch_size = config.evaluation.batch_size;
  context.threads = config.evaluation.threads;
  context.reported = run.reported;
  context.vocabulary_texts = std::make_shared<std::map<std::uint64_t, TowerFeatures>>();
  return context;
}

std::vector<UnreadTask> check_evaluation(const TrainingRun& run, const Config& config, const Unreadable* unreadable) {
  const DualEncoderEmbedder embedder(run.model, run.tokenizer);
  const EvaluationContext context = evaluation_context(run, config);
  check_judged_metric(config, embedder, run.objective->nested_widths());
  std::vector<UnreadTask> unread;
  for (std::size_t i = 0; i < config.evaluation.tasks.size(); ++i) {
    const config::ModuleSettings& task = config.evaluation.tasks[i];
    const std::string place = task_place(config.evaluation.tasks, i, "evaluation.tasks");
    if (unreadable != nullptr) {
      if (const std::string reason = missing_for(task, run, *unreadable); !reason.empty()) {
        unread.push_back({place, reason});
        continue;
      }
    }
    try {
      check_task(task, embedder, context);
    } catch (const TaskMisfit& error) {
      throw TaskMisfit(concat(place, ": ", error.what()));
    } catch (const UserError& error) {
      if (unreadable == nullptr) throw UserError(concat(place, ": ", error.what()));
      unread.push_back({place, error.what()});
    }
  }
  return unread;
}

}  // namespace tessera
