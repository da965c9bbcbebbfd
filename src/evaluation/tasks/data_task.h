// What every task needs. A task's file has its settings, its class, and its function add_X, which registry.cpp calls.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include "src/evaluation/tasks/pass.h"
#include "src/evaluation/tasks/results.h"
#include "src/evaluation/tasks/task_settings.h"
#include <tessera/base/text.h>
#include <tessera/evaluation/task.h>

namespace tessera {

/// The base of tasks with settings. add_task() makes them.
template <class S>
class TaskWithSettings : public EvaluationTask {
 public:
  using Settings = S;

  /// Must be called once, before all other methods; add_task() calls this method.
  void begin(const char* name, const char* rule, const S& settings) {
    name_ = name;
    rule_ = rule;
    settings_ = settings;
  }
  std::string rule() const override { return rule_; }

 protected:
  /// Returns what a sample must have; all samples are used unless a task overrides this method.
  virtual Required required() const { return {}; }

  /// Returns a pass over the required samples of a source.
  Pass pass_over(std::shared_ptr<const Source> source, std::int64_t max_samples, const Embedder& embedder, const EvaluationContext& context,
                 const ViewNeeds& needs) const {
    return {.embedder = embedder,
            .context = context,
            .source = std::move(source),
            .max_samples = max_samples,
            .required = required(),
            .needs = needs};
  }
  /// Does the same for data that are still to be opened, whose images all ranks can read.
  Pass pass_over(const SourceOrder& order, std::int64_t max_samples, const Embedder& embedder, const EvaluationContext& context,
                 const ViewNeeds& needs) const {
    Pass pass = pass_over(open_source(order, context), max_samples, embedder, context, needs);
    pass.order = order;
    return pass;
  }

  std::string name_;  // the registered name, with which the names of settings begin in messages ("zero_shot.source")
  S settings_;

 private:
  const char* rule_ = "";
};

/// Adds a task to the registry. `rule` is what EvaluationTask::rule() returns, unless the task overrides this method.
template <class Made>
void add_task(TaskRegistry& list, const char* name, const char* help, const char* rule = "") {
  using Settings = typename Made::Settings;
  list.add<Settings>(name, help, [name, rule](const Settings& settings) {
    const auto task = std::make_shared<Made>();
    task->begin(name, rule, settings);
    return task;
  });
}

/// The base of tasks on one set of data: their settings have a member `data` (TaskData). check() checks that some samples have what is
/// required, if anything is.
template <class S>
class DataTask : public TaskWithSettings<S> {
 public:
  void check(const EvaluationContext& context) const override {
    const std::shared_ptr<const Source> source = source_in(context);
    if (const Required required = this->required(); required.in) check_samples(*source, "source", settings_.data.max_samples, required);
  }

 protected:
  using TaskWithSettings<S>::name_;
  using TaskWithSettings<S>::settings_;

  SourceOrder order_of(Joined which) const { return {.key = name_ + ".source", .choice = settings_.data.source, .joined = which}; }
  /// Returns which samples count as one, unless the settings group equal images.
  virtual Joined joined() const { return Joined::same_file; }

  std::shared_ptr<const Source> source_in(const EvaluationContext& context) const { return open_source(order_of(joined()), context); }

  /// Returns a pass over the required samples. Opens the source.
  Pass pass_over_data(const Embedder& embedder, const EvaluationContext& context, const ViewNeeds& needs = {}) const {
    return this->pass_over(order_of(settings_.data.group_equal_images ? Joined::same_bytes : joined()), settings_.data.max_samples,
                           embedder, context, needs);
  }
};

/// The base of tasks that learn from one set of samples and are measured on another: their settings derive from TrainTestData. check()
/// checks that both have samples with what is required.
template <class S>
class TrainTestTask : public TaskWithSettings<S> {
 public:
  bool uses_texts() const override { return false; }

  void check(const EvaluationContext& context) const override {
    check_samples(*open_source(train_data(), context), "train", settings_.max_train_samples, this->required());
    check_samples(*open_source(test_data(), context), "source", settings_.max_samples, this->required());
  }

 protected:
  using TaskWithSettings<S>::name_;
  using TaskWithSettings<S>::settings_;

  SourceOrder train_data() const { return {.key = name_ + ".train", .choice = settings_.train, .train = true}; }
  SourceOrder test_data() const { return {.key = name_ + ".source", .choice = settings_.source}; }

  Pass train_pass(const Embedder& embedder, const EvaluationContext& context, const ViewNeeds& needs = {}) const {
    return this->pass_over(train_data(), settings_.max_train_samples, embedder, context, needs);
  }
  Pass test_pass(const Embedder& embedder, const EvaluationContext& context, const ViewNeeds& needs = {}) const {
    return this->pass_over(test_data(), settings_.max_samples, embedder, context, needs);
  }
};

}  // namespace tessera
