#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include <tessera/base/error.h>
#include <tessera/config/registry.h>
#include <tessera/data/loading/told_samples.h>
#include <tessera/data/source.h>
#include <tessera/evaluation/embedder.h>
#include <tessera/evaluation/run_loss.h>
#include <tessera/report/task_result.h>

namespace tessera {

class TextConditionedPool;

/// What a task may know of the run around it.
struct EvaluationContext {
  std::shared_ptr<const Source> source;        // for tasks whose `source` is null: the run's validation data
  std::shared_ptr<const Source> train_source;  // for tasks whose `train` is null: the run's training data
  std::shared_ptr<const RunLoss> loss;         // for validation_loss, captions and referring; null: there is no objective
  std::shared_ptr<TextConditionedPool> pool;   // the objective's, for scores conditioned on texts; null: it has none
  std::int64_t batch_size = 64;
  std::int64_t threads = 2;
  bool pictures = false;            // fill TaskResult::pictures
  double logit_scale = 100;         // factor of similarities in the probabilities that pictures show
  std::string out;                  // folder for files that tasks write (slot_mask.safetensors); empty: they write none
  std::vector<std::int64_t> slots;  // those that the evaluation keeps (--slots); empty: all
  /// Embeddings of whole vocabularies, which tasks that measure one model share, by what made them (TokenSpace); null:
  /// each task embeds them anew.
  std::shared_ptr<std::map<std::uint64_t, TowerFeatures>> vocabulary_texts;
  std::shared_ptr<ToldSamples> told;  // which samples the log has named as left out; null: each pass names its own
  /// Called after each batch of images; may be empty.
  std::function<void(std::int64_t done, std::int64_t total)> progress;
};

/// A task and its data, or the model, do not go together: the data lack what it needs, whether or not training goes well.
class TaskMisfit : public UserError {
 public:
  using UserError::UserError;
};

/// One kind of measurement. Its settings are read and checked when it is made, its data opened when it runs.
class EvaluationTask {
 public:
  virtual ~EvaluationTask() = default;
  /// Whether it embeds texts, so that a model without a text tower cannot be measured.
  virtual bool uses_texts() const { return true; }
  /// Looks at some samples of the task's data without decoding a picture, so that a run stops at its start and not after
  /// its training. Throws TaskMisfit if they lack what the task needs, UserError when the data cannot be read.
  virtual void check(const EvaluationContext& /*context*/) const {}
  /// The names of all metrics that run() gives, where they follow from settings and model alone; empty: they do not.
  virtual std::vector<std::string> metric_names(const Embedder& /*embedder*/) const { return {}; }
  virtual TaskResult run(const Embedder& embedder, const EvaluationContext& context) const = 0;
};

using TaskRegistry = config::Registry<EvaluationTask>;

/// All tasks by registered name. A user's own code adds one with evaluation_tasks().add<Settings>(name, help, factory).
TaskRegistry& evaluation_tasks();

/// Runs one task `{name: zero_shot, ...}`. Throws UserError for wrong settings (with their place), and for data or a
/// model that lacks what the task needs.
TaskResult run_task(const config::ModuleSettings& task, const Embedder& embedder, const EvaluationContext& context);

/// What messages call the index-th task of the list at `path`: "evaluation.tasks[2] (segmentation)".
std::string task_place(const std::vector<config::ModuleSettings>& tasks, std::size_t index, const std::string& path);

/// Runs the index-th task of the list at `path`; where it fails, why.
std::variant<TaskResult, TaskFailure> try_task(const std::vector<config::ModuleSettings>& tasks, std::size_t index,
                                               const std::string& path, const Embedder& embedder,
                                               const EvaluationContext& context);

/// EvaluationTask::check() of a task. Throws TaskMisfit also if it needs texts and the model takes none.
void check_task(const config::ModuleSettings& task, const Embedder& embedder, const EvaluationContext& context);

/// Checks a `tasks` list without running anything, so that a misspelt name stops a run at its start and not at its
/// first evaluation. Returns the list with every default spelt out.
std::vector<config::ModuleSettings> resolve_tasks(const std::vector<config::ModuleSettings>& tasks,
                                                  const std::string& path);

}  // namespace tessera
