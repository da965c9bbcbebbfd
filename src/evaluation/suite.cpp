#include <filesystem>

#include "src/config/environment.h"
#include "src/data/sources/tables.h"
#include "src/evaluation/data_sets.h"
#include <tessera/base/log.h>
#include <tessera/base/text.h>
#include <tessera/config/shipped.h>
#include <tessera/evaluation/evaluate.h>
#include <tessera/evaluation/task.h>
#include <tessera/io/atomic_file.h>

namespace tessera {
namespace {

namespace fs = std::filesystem;

/// Returns true for the name of a tar file, compressed or not.
bool is_tar(const std::string& name) {
  return name.find(".tar") != std::string::npos || name.ends_with(".tgz");
}

/// Returns true if the source `parquet` can read a folder that contains a file with this name. `state.json` is such a name, because
/// save_to_disk of Hugging Face datasets puts this file into each folder.
bool is_table(const std::string& name) {
  return name.ends_with(".parquet") || name.ends_with(".arrow") || name == "state.json";
}

/// Returns the name of the source that reads a folder. If there are tar shards, parquet files next to them are only side tables.
std::string source_of_folder(const fs::path& folder) {
  bool tables = false;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (is_tar(name)) return "webdataset";
    tables = tables || is_table(name);
  }
  return tables ? "parquet" : "image_folder";
}

config::ModuleSettings source_at(const std::string& name, const std::string& path) {
  config::ModuleSettings choice{name};
  choice.settings.set("path", config::Node::scalar(path, {}, true));
  return choice;
}

/// Returns the node at a dotted path; nullptr if there is none.
const config::Node* find_path(const config::Node& root, const std::string& path) {
  const config::Node* node = &root;
  for (const std::string& key : split(path, '.')) {
    if (node == nullptr) return nullptr;
    node = node->find(key);
  }
  return node;
}

/// Returns the tree with the overrides applied.
config::Node overridden(config::Node tree, const EvaluateOptions& options) {
  for (const std::string& assignment : options.overrides) config::apply_override(tree, assignment);
  return tree;
}

/// Returns the file of a suite. A shipped one may be named without its folder: datacomp.
std::string suite_file(const std::string& name) {
  std::error_code ignored;
  const fs::path shipped = fs::path(config::shipped_folder()) / "suites" / (name + ".yaml");
  if (!fs::is_regular_file(name, ignored) && name.find('/') == std::string::npos && fs::is_regular_file(shipped, ignored))
    return shipped.string();
  return config::find_configuration(name);
}

/// Reads a suite file, which may also be a plain list of tasks.
config::Node suite_tree(const EvaluateOptions& options) {
  const std::string path = suite_file(options.suite);
  const config::Node list = config::parse_yaml(io::read_file(path), path);
  for (const auto& [name, value] : config::defaults_used(list))
    log::info(path, ": the environment variable ", name, " is not set, so the default ", value, " is used");
  if (!list.is_sequence()) return config::load_yaml(path, options.overrides);
  return config::expand_environment(overridden(config::Node::map({{"tasks", list}}), options));
}

config::Node tree_of(const EvaluateOptions& options, const config::Node& run_config) {
  if (!options.suite.empty() && !options.task.empty()) user_error("give --suite or --task, not both");
  if (!options.task.empty()) {
    config::Node task = overridden(config::Node::map(), options);  // with --task, overrides change the settings of that task
    task.set("name", config::Node::scalar(options.task, {"--task", 0}, true));
    return config::Node::map({{"tasks", config::Node::sequence({task})}});
  }
  if (!options.suite.empty()) return suite_tree(options);
  const config::Node* tasks = find_path(run_config, "evaluation.tasks");
  if (tasks == nullptr || !tasks->is_sequence() || tasks->items().empty()) {
    user_error("nothing to measure: give --suite FILE (", config::shipped_folder(), "/suites has some) or --task NAME, one of ",
               join_names(evaluation_tasks().names()));
  }
  return overridden(config::Node::map({{"tasks", *tasks}}), options);
}

/// Makes the task that runs --query.
config::Node query_task(const std::vector<std::string>& queries) {
  std::vector<config::Node> texts;
  for (const std::string& text : queries) texts.push_back(config::Node::scalar(text, {"--query", 0}, true));
  return config::Node::map({{"name", config::Node::scalar("query", {"--query", 0}, true)}, {"texts", config::Node::sequence(texts)}});
}

/// Returns the tasks. If there are queries, appends the task that runs these queries. If neither --suite nor --task is given, this task is
/// the only task, and overrides change its settings.
config::Node tree_with_queries(const EvaluateOptions& options, const config::Node& run_config) {
  if (options.queries.empty()) return tree_of(options, run_config);
  config::Node own = query_task(options.queries);
  if (options.suite.empty() && options.task.empty())
    return config::Node::map({{"tasks", config::Node::sequence({overridden(own, options)})}});
  config::Node tree = tree_of(options, run_config);
  std::vector<config::Node> tasks;
  if (const config::Node* others = tree.find("tasks"); others != nullptr && others->is_sequence()) tasks = others->items();
  tasks.push_back(std::move(own));
  tree.set("tasks", config::Node::sequence(tasks));
  return tree;
}

}  // namespace

config::ModuleSettings source_from_text(const std::string& text, const std::string& option) {
  if (text.find('{') == 0) {
    return config::Value<config::ModuleSettings>::read(config::parse_yaml(text, option), option, {});
  }
  if (sources().contains(text)) return {text};
  std::error_code ignored;
  if (fs::is_directory(text, ignored)) return source_at(source_of_folder(text), text);
  if (is_tar(text)) return source_at("webdataset", text);
  if (is_table(text)) return source_at("parquet", text);
  if (fs::is_regular_file(text, ignored)) {
    if (text.ends_with(".csv") || text.ends_with(".tsv"))
      return {"csv", config::dump(csv_settings_of(text, concat(option, " ", text)))};
    if (text.ends_with(".jsonl")) return source_at("json_lines", text);
    user_error(option, " ", text,
               ": only .tar, .tar.gz, .tgz, .parquet, .arrow, .csv, .tsv and .jsonl files are recognized; give {name: SOURCE, path: ", text,
               "} for other files");
  }
  user_error(option, " ", text, ": there is no such file or folder, and no source of this name", suggestion(text, sources().names()));
}

void check_data_options(const EvaluateOptions& options) {
  if (!options.data.empty()) source_from_text(options.data, "--data");
  if (!options.train_data.empty()) source_from_text(options.train_data, "--train-data");
}

std::optional<config::ModuleSettings> run_source(const config::Node& run_config, const std::string& path) {
  const config::Node* node = find_path(run_config, path);
  if (node == nullptr || node->is_null()) return std::nullopt;
  return config::Value<config::ModuleSettings>::read(*node, path, {});
}

SuiteSettings load_suite(const EvaluateOptions& options, const config::Node& run_config) {
  SuiteSettings suite = config::read<SuiteSettings>(tree_with_queries(options, run_config));
  if (!suite.sets.empty()) {
    if (!suite.tasks.empty()) user_error(options.suite, ": has both tasks and sets: give one of them, and no --query");
    suite.name = fs::path(options.suite).stem().string();
    find_data_sets(options.data, suite);
    suite.tasks = resolve_tasks(suite.tasks, "tasks");
    return suite;
  }
  if (suite.tasks.empty()) user_error(options.suite, ": tasks is empty: nothing to measure");
  suite.tasks = resolve_tasks(suite.tasks, "tasks");
  if (!options.data.empty()) suite.source = source_from_text(options.data, "--data");
  if (!options.train_data.empty()) suite.train = source_from_text(options.train_data, "--train-data");
  if (!suite.source) suite.source = run_source(run_config, "data.validation");
  if (!suite.train) suite.train = run_source(run_config, "data.train");
  if (suite.source) suite.source = sources().resolve(*suite.source, "source");
  if (suite.train) suite.train = sources().resolve(*suite.train, "train");
  return suite;
}

}  // namespace tessera
