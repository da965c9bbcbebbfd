#include <algorithm>
#include <chrono>

#include <c10/util/Exception.h>

#include "src/data/loading/reported_samples.h"
#include <tessera/base/log.h>
#include <tessera/base/text.h>
#include <tessera/data/tokenizers/tokenizer.h>
#include <tessera/evaluation/task.h>

namespace tessera {

// Each of these functions, in the task's file, adds the task of its name.
using AddTask = void(TaskRegistry& list);
AddTask add_zero_shot, add_retrieval, add_k_precision, add_segmentation, add_linear_probe, add_segmentation_probe, add_depth_probe,
    add_knn, add_hard_negatives, add_fgovd, add_options, add_slot_mask, add_slots, add_interpretability, add_tokens,
    add_token_group_iou, add_feature_map, add_grad_cam, add_words, add_query, add_validation_loss, add_captions, add_referring,
    add_winogavil, add_faces;

namespace {

std::shared_ptr<EvaluationTask> make_task(const config::ModuleSettings& task, const Embedder& embedder) {
  auto made = evaluation_tasks().make(task, task.name);
  if (made->uses_texts() && !embedder.takes_texts())
    throw TaskMisfit(task.name +
                     " compares images with texts, but this model has no text tower: linear_probe and knn do "
                     "not need one");
  return made;
}

/// Fills in the defaults of a module in a task's settings. `key` is the setting that names the module; if the settings lack it, nothing is
/// changed. `path` is the path of the task.
template <class Parts>
void resolve_part(config::ModuleSettings& task, const std::string& key, const Parts& parts, const std::string& path) {
  const config::Node* node = task.settings.find(key);
  if (node == nullptr || node->is_null()) return;
  const std::string place = config::join_path(path, key);
  const auto part = config::Value<config::ModuleSettings>::read(*node, place, {});
  task.settings.set(key, config::Value<config::ModuleSettings>::dump(parts.resolve(part, place)));
}

/// Fills in the defaults of all modules in the setting `key`, whose value maps names to modules.
template <class Parts>
void resolve_parts(config::ModuleSettings& task, const std::string& key, const Parts& parts, const std::string& path) {
  const config::Node* node = task.settings.find(key);
  if (node == nullptr || !node->is_map()) return;
  config::ModuleSettings named{"", *node};
  for (const auto& [name, part] : node->members()) resolve_part(named, name, parts, config::join_path(path, key));
  task.settings.set(key, named.settings);
}

bool has_setting(const config::RegistryBase::Entry& entry, const std::string& key) {
  return std::ranges::any_of(entry.document(), [&](const config::FieldDoc& field) { return field.path == key; });
}

/// Throws UserError if the task has a setting that only data have. A setting that begins one of the task's own is a mistyped one.
void refuse_settings_of_data(const config::ModuleSettings& task, const std::string& path) {
  const auto own = std::ranges::find(evaluation_tasks().entries(), task.name, &config::RegistryBase::Entry::name);
  if (own == evaluation_tasks().entries().end()) return;
  for (const auto& [key, value] : task.settings.members()) {
    if (std::ranges::any_of(own->document(), [&](const config::FieldDoc& field) { return field.path.starts_with(key); }))
      continue;
    std::vector<std::string> known;
    for (const config::RegistryBase::Entry& source : sources().entries())
      if (has_setting(source, key)) known.push_back(source.name);
    if (known.empty()) continue;
    const std::string& source = known.front();
    user_error(value.mark().text(), value.mark().text().empty() ? "" : ": ", config::join_path(path, key),
               ": unknown key: ", key, " is a setting of the data (", join_names(known),
               "): set it where the data are named, as in --data '{name: ", source, ", path: ..., ", key,
               ": ...}' or source: {name: ", source, ", path: ..., ", key, ": ...}");
  }
}

}  // namespace

TaskRegistry& evaluation_tasks() {
  static TaskRegistry registry = [] {
    TaskRegistry list("evaluation task");
    for (AddTask* const add :
         {add_zero_shot, add_retrieval, add_k_precision, add_segmentation, add_linear_probe, add_segmentation_probe, add_depth_probe,
          add_knn, add_hard_negatives, add_fgovd, add_options, add_slot_mask, add_slots, add_interpretability, add_tokens,
          add_token_group_iou, add_feature_map, add_grad_cam, add_words, add_query, add_validation_loss, add_captions, add_referring,
          add_winogavil, add_faces})
      add(list);
    return list;
  }();
  return registry;
}

TaskResult run_task(const config::ModuleSettings& task, const Embedder& embedder, const EvaluationContext& context) {
  const auto made = make_task(task, embedder);
  const auto start = std::chrono::steady_clock::now();
  TaskResult result = made->run(embedder, context);
  result.task = task.name;
  result.settings = task.settings;
  result.rule = made->rule();
  result.intervals = report::compute_intervals(make_outcomes(result));
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  for (const std::string& note : result.notes) {
    if (context.reported != nullptr && context.reported->tell(task.name + " notes", note) == ReportedSamples::Tell::no) continue;
    const bool warns = contains(result.warnings, note);
    log::write(warns ? log::Level::warning : log::Level::info, concat(task.name, ": ", note));
  }
  return result;
}

std::variant<TaskResult, TaskFailure> try_task(const std::vector<config::ModuleSettings>& tasks, std::size_t index,
                                               const std::string& path, const Embedder& embedder,
                                               const EvaluationContext& context) {
  const config::ModuleSettings& task = tasks.at(index);
  const auto failed = [&](const std::string& reason) {
    return TaskFailure{task.name, reason.substr(0, reason.find('\n')), task_place(tasks, index, path), task.settings};
  };
  try {
    return run_task(task, embedder, context);
  } catch (const c10::Error& error) {
    return failed(error.what_without_backtrace());
  } catch (const std::exception& error) {
    return failed(error.what());
  }
}

std::string task_name(const std::vector<config::ModuleSettings>& tasks, std::size_t index) {
  const std::string& name = tasks.at(index).name;
  const auto earlier = std::count_if(tasks.begin(), tasks.begin() + static_cast<std::ptrdiff_t>(index),
                                     [&](const config::ModuleSettings& each) { return each.name == name; });
  return earlier == 0 ? name : concat(name, "_", earlier + 1);
}

std::string task_place(const std::vector<config::ModuleSettings>& tasks, std::size_t index, const std::string& path) {
  return concat(path, "[", index, "] (", tasks.at(index).name, ")");
}

void check_task(const config::ModuleSettings& task, const Embedder& embedder, const EvaluationContext& context) {
  make_task(task, embedder)->check(context);
}

std::vector<config::ModuleSettings> resolve_tasks(const std::vector<config::ModuleSettings>& tasks, const std::string& path) {
  std::vector<config::ModuleSettings> out;
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    const std::string at = concat(path, "[", i, "]");
    refuse_settings_of_data(tasks[i], at);
    config::ModuleSettings task = evaluation_tasks().resolve(tasks[i], at);
    resolve_part(task, "source", sources(), at);
    resolve_part(task, "train", sources(), at);
    resolve_parts(task, "sets", sources(), at);
    resolve_part(task, "vocabulary", tokenizers(), at);
    out.push_back(std::move(task));
  }
  return out;
}

}  // namespace tessera
