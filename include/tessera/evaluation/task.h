#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <nlohmann/json_fwd.hpp>

#include <tessera/config/registry.h>
#include <tessera/data/source.h>
#include <tessera/data/tokenizers/tokenizer.h>
#include <tessera/report/task_pictures.h>
#include <tessera/models/dual_encoder.h>

namespace tessera {

/// What a task may know of the run around it.
struct EvaluationContext {
  std::shared_ptr<const Source> source;        // for tasks whose `source` is null: the run's validation data
  std::shared_ptr<const Source> train_source;  // for tasks whose `train` is null: the run's training data
  at::Device device = at::kCPU;                // where the model lies
  std::int64_t batch_size = 64;
  std::int64_t threads = 2;
  bool pictures = false;     // fill TaskResult::pictures
  double logit_scale = 100;  // factor of cosines in the probabilities that pictures show
  /// Called after each batch of images; may be empty.
  std::function<void(std::int64_t done, std::int64_t total)> progress;
};

/// What a task measured.
struct TaskResult {
  std::string task;                                     // registered name
  std::string data;                                     // the source's description
  std::vector<std::pair<std::string, double>> metrics;  // in a fixed order; shares are in [0, 1]
  std::int64_t samples = 0;                             // images looked at
  std::map<std::string, std::int64_t> skipped;          // unreadable or incomplete samples, by reason
  double seconds = 0;
  TaskPictures pictures;

  std::int64_t skipped_total() const;
};

/// One kind of measurement. Its settings are read and checked when it is made, its data opened when it runs.
class EvaluationTask {
 public:
  virtual ~EvaluationTask() = default;
  /// Throws UserError if the data that `context` gives lacks something the task needs and that can be told without
  /// reading samples (class names, say): so a run stops at its start and not after its training.
  virtual void check(const EvaluationContext& /*context*/) const {}
  /// The model is used in evaluation mode without gradients; run_task sees to both.
  virtual TaskResult run(DualEncoder& model, const Tokenizer& tokenizer, const EvaluationContext& context) const = 0;
};

using TaskRegistry = config::Registry<EvaluationTask>;

/// zero_shot, retrieval, segmentation, linear_probe, knn, hard_negatives. A user's own code adds one with
/// evaluation_tasks().add<Settings>(name, help, factory).
TaskRegistry& evaluation_tasks();

/// Runs one task `{name: zero_shot, ...}`: no gradients, evaluation mode (the model's mode is put back afterwards).
/// Throws UserError for wrong settings (with their place) and for data that lacks what the task needs.
TaskResult run_task(const config::ModuleSettings& task, DualEncoder& model, const Tokenizer& tokenizer,
                    const EvaluationContext& context);

/// EvaluationTask::check of every task of a list.
void check_tasks(const std::vector<config::ModuleSettings>& tasks, const EvaluationContext& context);

/// Checks a `tasks` list without running anything, so that a misspelt name stops a run at its start and not at its
/// first evaluation. Returns the list with every default spelt out.
std::vector<config::ModuleSettings> resolve_tasks(const std::vector<config::ModuleSettings>& tasks, const std::string& path);

/// {"task", "data", "metrics": {...}, "samples", "skipped": {...}, "seconds"}; pictures are left out.
nlohmann::json to_json(const TaskResult& result);

/// One line for a log: "zero_shot: top1 54.3%, top5 91.0% (1,000 images)".
std::string summary_line(const TaskResult& result);

/// Aligned columns task, data, images, metric, value for the terminal.
std::string results_table(const std::vector<TaskResult>& results);

/// A metric for people: shares as "54.31%", anything else as a plain number. What is a share follows from the metric's
/// name.
std::string format_metric(const std::string& name, double value);

}  // namespace tessera
