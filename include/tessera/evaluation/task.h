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
#include <tessera/data/source.h>
#include <tessera/evaluation/embedder.h>
#include <tessera/evaluation/run_loss.h>
#include <tessera/report/task_result.h>

namespace tessera {

class TextConditionedPool;
class RankEmbedder;
class ReportedSamples;

/// What an evaluation provides to its tasks: data, parts of the model, and settings.
struct EvaluationContext {
  std::shared_ptr<const Source> source;        // the run's validation data, for tasks whose setting `source` is null
  std::shared_ptr<const Source> train_source;  // the run's training data, for tasks whose setting `train` is null
  // the run's loss, for the tasks validation_loss, captions and referring; null if there is no objective
  std::shared_ptr<const RunLoss> loss;
  std::shared_ptr<TextConditionedPool> pool;   // the objective's pool, for scores conditioned on texts; null if the objective has none
  std::int64_t batch_size = 64;  // of each rank
  std::int64_t threads = 2;
  bool images = false;            // whether tasks should fill TaskResult::cards
  double logit_scale = 100;         // for the report's probabilities, similarities are multiplied by this factor before the softmax
  std::string out;                  // folder for files that tasks write (slot_mask.safetensors); empty: tasks write no files
  std::vector<std::int64_t> widths;  // numbers of columns at which embeddings may be cut (Matryoshka); tasks on cosines measure each, too
  std::vector<std::int64_t> slots;  // the slots that the evaluation keeps (--slots); empty: all slots
  /// Embeddings of whole vocabularies, shared by the tasks that measure one model. The key is a hash of the vocabulary and the
  /// templates (TokenSpace). If null, each task embeds the vocabulary itself.
  std::shared_ptr<std::map<std::uint64_t, TowerFeatures>> vocabulary_texts;
  // skipped samples that the log has already reported; null: each pass over the data reports its skipped samples
  std::shared_ptr<ReportedSamples> reported;
  const RankEmbedder* ranks = nullptr;  // the embedder with which all ranks read and decode images; null: only this rank does
  /// Called after each batch of images; may be empty.
  std::function<void(std::int64_t done, std::int64_t total)> progress;
};

/// Thrown if a task does not fit its data or the model, for example because the data lack something that the task needs. More training of
/// the model does not help.
class TaskMisfit : public UserError {
 public:
  using UserError::UserError;
};

/// One kind of measurement. The constructor reads and checks the settings; run() opens the data and measures.
class EvaluationTask {
 public:
  virtual ~EvaluationTask() = default;
  /// Returns sentences for reports that say how the metrics are computed with the task's settings; empty if the task explains none.
  virtual std::string rule() const { return ""; }
  /// Returns true if the task embeds texts and therefore needs a model with a text tower.
  virtual bool uses_texts() const { return true; }
  /// Checks some samples of the task's data without decoding images, so that a run with unsuitable data stops at its start and not
  /// after training. Throws TaskMisfit if the samples lack something that the task needs, and UserError if the data cannot be read.
  virtual void check(const EvaluationContext& /*context*/) const {}
  /// Returns the names of all metrics of run() if they depend only on the settings and the model; otherwise an empty list.
  virtual std::vector<std::string> metric_names(const Embedder& /*embedder*/) const { return {}; }
  virtual TaskResult run(const Embedder& embedder, const EvaluationContext& context) const = 0;
};

using TaskRegistry = config::Registry<EvaluationTask>;

/// Returns the registry of all tasks. User code adds a task with evaluation_tasks().add<Settings>(name, help, factory).
TaskRegistry& evaluation_tasks();

/// Runs one task `{name: zero_shot, ...}`. Throws UserError if settings are wrong (the message names the key), or if the data or
/// the model lack something that the task needs.
TaskResult run_task(const config::ModuleSettings& task, const Embedder& embedder, const EvaluationContext& context);

/// Returns the index-th task's name in the names of metrics: `retrieval`, or `retrieval_2` for the list's second task of that name.
std::string task_name(const std::vector<config::ModuleSettings>& tasks, std::size_t index);

/// Returns a name for the index-th task of the list at `path`, for messages: "evaluation.tasks[2] (segmentation)".
std::string task_place(const std::vector<config::ModuleSettings>& tasks, std::size_t index, const std::string& path);

/// Runs the index-th task of the list at `path`. Returns its result or, if it fails, the failure with its reason.
std::variant<TaskResult, TaskFailure> try_task(const std::vector<config::ModuleSettings>& tasks, std::size_t index,
                                               const std::string& path, const Embedder& embedder,
                                               const EvaluationContext& context);

/// Calls EvaluationTask::check(). Also throws TaskMisfit if the task needs texts and the model has no text tower.
void check_task(const config::ModuleSettings& task, const Embedder& embedder, const EvaluationContext& context);

/// Checks a list of tasks without running anything, so that a misspelled name stops a run at its start and not at its first
/// evaluation. Returns the list with all defaults filled in.
std::vector<config::ModuleSettings> resolve_tasks(const std::vector<config::ModuleSettings>& tasks,
                                                  const std::string& path);

}  // namespace tessera
