#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>

#include <nlohmann/json.hpp>

#include "src/report/compared_run.h"
#include "src/report/natural_order.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/config/node.h>
#include <tessera/io/atomic_file.h>

namespace tessera::report {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr double kSecondsAMinute = 60;
constexpr std::string_view kTasks = "evaluation.tasks";  // tasks are identified by name, because their order may differ between runs

Json read_json(const fs::path& path) {
  Json json = Json::parse(io::read_file(path.string()), nullptr, false);
  if (!json.is_object()) user_error(path.string(), ": is not a JSON object, so the results in it cannot be compared");
  return json;
}

std::optional<std::int64_t> step_of(const Json& json) {
  const auto found = json.find("step");
  if (found == json.end() || !found->is_number_integer()) return std::nullopt;
  return found->get<std::int64_t>();
}

std::string text_of(const Json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_string() ? found->get<std::string>() : "";
}

/// Returns the interval of a metric in a task's result, if there is one.
std::optional<Interval> interval_of(const Json& result, const std::string& metric) {
  const auto intervals = result.find("intervals");
  if (intervals == result.end() || !intervals->is_object() || !intervals->contains(metric)) return std::nullopt;
  const Json& ends = intervals->at(metric);
  if (!ends.is_array() || ends.size() != 2 || !ends[0].is_number() || !ends[1].is_number()) return std::nullopt;
  return Interval{ends[0].get<double>(), ends[1].get<double>()};
}

/// Returns the scores of one evaluation.
std::vector<Score> scores_in(const Json& json) {
  std::vector<Score> out;
  std::map<std::pair<std::string, std::string>, int> times;
  for (const Json& result : results_in(json)) {
    const auto metrics = result.find("metrics");
    if (metrics == result.end() || !metrics->is_object()) continue;
    std::string task = text_of(result, "task");
    const std::string data = text_of(result, "data");
    if (const int time = ++times[{task, data}]; time > 1) task += concat("_", time);
    std::vector<Score> own;
    for (const auto& [metric, value] : metrics->items())
      own.push_back({task, data, metric,
                     value.is_number() ? value.get<double>() : std::numeric_limits<double>::quiet_NaN(),
                     interval_of(result, metric),
                     {},
                     text_of(result, "rule"),
                     step_of(json),
                     rule_in(result, metric),
                     false,
                     result.contains("name") ? text_of(result, "name") : task});
    std::ranges::sort(own, NaturalOrder{}, &Score::metric);
    out.insert(out.end(), own.begin(), own.end());
  }
  return out;
}

/// If there is a samples.json next to the results, adds its outcomes to the scores.
void add_outcomes(const fs::path& path, std::vector<Score>& scores) {
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) return;
  std::map<std::pair<std::string, std::string>, int> times;
  for (TaskOutcomes& task : task_outcomes(read_json(path), path.string())) {
    if (const int time = ++times[{task.task, task.data}]; time > 1) task.task += concat("_", time);
    const auto shared = std::make_shared<const TaskOutcomes>(std::move(task));
    for (Score& score : scores)
      if (score.task == shared->task && score.data == shared->data) score.outcomes = shared;
  }
}

/// Merges newer scores into the known scores; a newer score replaces the older one of the same metric.
void take_scores(std::vector<Score>& known, const std::vector<Score>& newer) {
  for (const Score& score : newer) {
    const auto same = std::find_if(known.begin(), known.end(), [&](const Score& old) {
      return old.task == score.task && old.data == score.data && old.metric == score.metric;
    });
    if (same == known.end())
      known.push_back(score);
    else
      *same = score;
  }
}

/// Returns the scores of each evaluation during training, by step.
std::map<std::int64_t, std::vector<Score>> training_evaluations(const fs::path& folder, ComparedRun& run) {
  std::map<std::int64_t, std::vector<Score>> out;
  std::error_code missing;
  for (const auto& entry : fs::directory_iterator(folder / "evaluation", missing)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("step_") || !name.ends_with(".json")) continue;
    const Json json = read_json(entry.path());
    if (const auto step = step_of(json)) out[*step] = scores_in(json);
    if (run.device.empty()) run.device = text_of(json, "device");
  }
  return out;
}

/// Returns the results.json files of `evaluate` that are in the folder itself or in its subfolders evaluation, evaluation-2, ..., and that
/// of `python -m tessera mteb`.
std::vector<fs::path> result_files(const fs::path& folder) {
  std::vector<fs::path> out;
  std::error_code ignored;
  const auto take = [&](const fs::path& path) {
    const bool there = fs::is_regular_file(path, ignored);
    if (there) out.push_back(path);
    return there;
  };
  take(folder / "evaluation" / "results.json");
  for (int number = 2; take(folder / concat("evaluation-", number) / "results.json");) ++number;
  take(folder / "mteb" / "results.json");
  take(folder / "results.json");
  return out;
}

/// Reads the evaluations during training and their curves. Returns the step of the last evaluation, or -1 if there are none.
std::int64_t read_training_scores(const fs::path& folder, ComparedRun& run) {
  std::int64_t last = -1;
  for (const auto& [step, scores] : training_evaluations(folder, run)) {
    for (const Score& score : scores) {
      const std::string name = concat(score.curve, ".", score.metric);
      run.curves.add(static_cast<double>(step), "evaluation." + name, score.value);
      if (score.meaning.percent) run.percent.insert(name);
    }
    run.scores = scores;
    last = step;
  }
  return last;
}

/// Takes over what a results.json of `evaluate` says about the run. Returns its scores.
std::vector<Score> take_results(const fs::path& path, const Json& json, ComparedRun& run) {
  std::vector<Score> scores = scores_in(json);
  for (Score& score : scores) score.evaluated = true;
  add_outcomes(path.parent_path() / "samples.json", scores);
  if (run.version.empty() && !text_of(json, "version").empty())
    run.version = concat("Tessera ", text_of(json, "version"), " (", text_of(json, "commit"), ")");
  for (const auto& [fact, key] :
       {std::pair(&run.device, "device"), std::pair(&run.date, "date"), std::pair(&run.parameters, "parameters")})
    if (fact->empty()) *fact = text_of(json, key);
  return scores;
}

void read_scores(const fs::path& folder, ComparedRun& run) {
  std::int64_t last = read_training_scores(folder, run);
  std::vector<std::pair<fs::path, Json>> files;
  for (const fs::path& path : result_files(folder)) files.emplace_back(path, read_json(path));
  // After --overwrite, a folder with a lower number has newer results.
  std::ranges::stable_sort(files, {}, [](const auto& file) { return text_of(file.second, "date"); });
  for (const auto& [path, json] : files) {
    std::vector<Score> older = take_results(path, json, run), newer = run.scores;
    const std::int64_t step = step_of(json).value_or(std::numeric_limits<std::int64_t>::max());
    if (step >= last) std::swap(older, newer);
    take_scores(older, newer);
    run.scores = older;
    last = std::max(last, step_of(json).value_or(last));
  }
  if (!run.step && last >= 0) run.step = last;
}

/// Converts "2026-11-23T14:39:30Z" to "2026-11-23 14:39:30 UTC".
std::string time_of_row(std::string time) {
  if (!time.ends_with('Z')) return time;
  time.replace(time.size() - 1, 1, " UTC");
  if (const std::size_t middle = time.find('T'); middle < time.size() - 3) time[middle] = ' ';
  return time;
}

/// Updates the step from the checkpoints, because the newest checkpoint may be later than the last row of the log.
void read_checkpoints(const fs::path& folder, ComparedRun& run) {
  constexpr std::string_view prefix = "step_";
  std::error_code missing;
  for (const auto& entry : fs::directory_iterator(folder / "checkpoints", missing)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(prefix)) continue;
    std::int64_t step = 0;
    const char* const last = name.data() + name.size();
    const auto [end, error] = std::from_chars(name.data() + prefix.size(), last, step);
    if (error == std::errc() && end == last) run.step = std::max(run.step.value_or(0), step);
  }
}

/// Reads the parameter counts from the run's log, from the last session if there were several.
void read_log(const fs::path& folder, ComparedRun& run) {
  std::ifstream file(folder / "log.txt");
  constexpr std::string_view marker = " info parameters ";
  for (std::string line; std::getline(file, line);)
    if (const std::size_t place = line.find(marker); place != std::string::npos && place == line.find(' '))
      run.parameters = line.substr(place + marker.size());
}

void read_rows(const fs::path& folder, ComparedRun& run) {
  std::ifstream file(folder / "metrics.jsonl");
  for (std::string line; std::getline(file, line);) {
    const Json row = Json::parse(line, nullptr, false);
    if (!row.is_object()) continue;
    run.curves.add(row);
    if (const auto step = step_of(row)) run.step = std::max(run.step.value_or(0), *step);
    if (const std::string time = text_of(row, "time"); !time.empty()) run.date = time_of_row(time);
    const auto number = [&](const char* key) {
      const auto found = row.find(key);
      return found != row.end() && found->is_number() ? found->get<double>() : std::nan("");
    };
    if (std::isfinite(number("seconds"))) run.curves.add(number("seconds") / kSecondsAMinute, "loss_by_minutes", number("loss"));
    if (std::isfinite(number("samples"))) run.curves.add(number("samples"), "loss_by_samples", number("loss"));
  }
}

bool is_list_of_scalars(const config::Node& node) {
  return node.is_sequence() &&
         std::all_of(node.items().begin(), node.items().end(), [](const auto& item) { return item.is_scalar(); });
}

std::string short_list(const config::Node& node) {
  std::string text;
  for (const config::Node& item : node.items()) text += (text.empty() ? "" : ", ") + item.text();
  return "[" + text + "]";
}

/// Lists the settings under `node` as {path, value}. Leaves out the run's folder and name, which always differ.
void flatten(const config::Node& node, const std::string& path, std::vector<std::pair<std::string, std::string>>& out) {
  const auto below = [&](const std::string& key) { return path.empty() ? key : path + "." + key; };
  if (path == "run.folder" || path == "run.mirror" || path == "run.name") return;
  if (node.is_map()) {
    for (const auto& [key, value] : node.members()) flatten(value, below(key), out);
  } else if (node.is_sequence() && !is_list_of_scalars(node)) {
    std::map<std::string, int> times;
    for (std::size_t i = 0; i < node.items().size(); ++i) {
      const config::Node& item = node.items()[i];
      const config::Node* name = path == kTasks && item.is_map() ? item.find("name") : nullptr;
      std::string key = name != nullptr ? name->text() : std::to_string(i);
      if (const int time = ++times[key]; time > 1) key += concat(" (", time, ")");
      flatten(item, below(key), out);
    }
  } else {
    out.emplace_back(path, node.is_null() ? "null" : node.is_sequence() ? short_list(node) : node.text());
  }
}

void read_settings(const fs::path& folder, ComparedRun& run) {
  const std::string path = (folder / "config.yaml").string();
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) return;
  const std::string text = io::read_file(path);
  constexpr std::string_view version = "# Tessera ";
  if (text.starts_with(version)) run.version = text.substr(2, text.find('\n') - 2);
  flatten(config::parse_yaml(text, path), "", run.settings);
}

void read_training(const fs::path& folder, ComparedRun& run) {
  read_settings(folder, run);
  read_rows(folder, run);
  read_checkpoints(folder, run);
  read_log(folder, run);
}

bool holds_results(const fs::path& folder) {
  std::error_code ignored;
  return fs::is_regular_file(folder / "metrics.jsonl", ignored) || !result_files(folder).empty();
}

[[noreturn]] void refuse(const std::string& folder) {
  std::error_code missing;
  if (!fs::exists(folder, missing)) user_error(folder, ": there is no such folder");
  std::vector<std::string> stages;
  for (const auto& entry : fs::directory_iterator(folder, missing))
    if (holds_results(entry.path())) stages.push_back((fs::path(folder) / entry.path().filename()).string());
  std::sort(stages.begin(), stages.end());
  user_error(folder, ": is neither a run nor an evaluation: it holds neither metrics.jsonl nor results.json",
             stages.empty() ? "" : "; its subfolders that do: " + join_names(stages));
}

/// Returns the folder names in a path, from the last to the first. A run's name is formed from these names. For an evaluation's folder, the
/// list starts with the parent folder.
std::vector<std::string> name_parts(const fs::path& path) {
  std::vector<std::string> parts;
  for (const fs::path& part : path) parts.insert(parts.begin(), part.string());
  if (parts.size() < 2 || !parts.front().starts_with("evaluation")) return parts;
  if (parts.front() != "evaluation") parts[1] += "/" + parts.front();
  parts.erase(parts.begin());
  return parts;
}

std::string joined_name(const std::vector<std::string>& parts, std::size_t count) {
  std::string name;
  for (std::size_t i = std::min(count, parts.size()); i-- > 0;) name += parts[i] + (i > 0 ? "/" : "");
  return name;
}

/// Names each run by the end of its path, with as many parts as it takes to distinguish the run from the others.
void name_apart(std::vector<ComparedRun>& runs, const std::vector<fs::path>& paths) {
  std::vector<std::vector<std::string>> parts;
  std::size_t longest = 1;
  for (const fs::path& path : paths) {
    parts.push_back(name_parts(path));
    longest = std::max(longest, parts.back().size());
  }
  std::vector<std::size_t> counts(runs.size(), 1);
  for (std::size_t count = 1; count <= longest; ++count) {
    std::map<std::string, int> uses;
    for (std::size_t i = 0; i < runs.size(); ++i) ++uses[runs[i].name = joined_name(parts[i], counts[i])];
    for (std::size_t i = 0; i < runs.size(); ++i)
      if (uses[runs[i].name] > 1) ++counts[i];
  }
}

/// Adds the path of a file or folder; `problem` is the message if the list has it already.
void add_path(const std::string& name, const char* problem, std::vector<fs::path>& paths) {
  std::error_code remote;  // a model in a store has no path
  fs::path path = fs::canonical(name, remote);
  if (remote) path = name;
  if (contains(paths, path)) user_error(name, ": ", problem);
  paths.push_back(path);
}

ComparedRun read_compared_run(const std::string& folder, const fs::path& path) {
  ComparedRun run;
  run.folder = folder;
  read_training(path, run);
  read_scores(path, run);
  return run;
}

ComparedRun read_measured_model(const MeasuredModel& measured) {
  ComparedRun run;
  run.folder = measured.model;
  read_training(measured.model, run);
  read_training_scores(measured.model, run);
  const fs::path file = fs::path(measured.results) / "results.json";
  const Json json = read_json(file);
  run.scores = take_results(file, json, run);
  run.step = step_of(json);
  return run;
}

}  // namespace

std::vector<ComparedRun> read_measured_models(const std::vector<MeasuredModel>& models) {
  std::vector<ComparedRun> runs;
  std::vector<fs::path> paths;
  for (const MeasuredModel& model : models) {
    add_path(model.model, "is given twice", paths);
    runs.push_back(read_measured_model(model));
  }
  for (fs::path& path : paths)
    if (fs::is_regular_file(path)) path.replace_extension();
  name_apart(runs, paths);
  return runs;
}

const std::string* ComparedRun::setting(const std::string& key) const {
  const auto found = std::find_if(settings.begin(), settings.end(), [&](const auto& each) { return each.first == key; });
  return found == settings.end() ? nullptr : &found->second;
}

std::vector<ComparedRun> read_compared_runs(const std::vector<std::string>& folders) {
  std::vector<ComparedRun> runs;
  std::vector<fs::path> paths;
  for (const std::string& folder : folders) {
    if (!holds_results(folder)) refuse(folder);
    add_path(folder, "this run is given twice", paths);
    runs.push_back(read_compared_run(folder, paths.back()));
  }
  name_apart(runs, paths);
  return runs;
}

}  // namespace tessera::report
