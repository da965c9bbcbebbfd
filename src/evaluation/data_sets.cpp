#include "src/evaluation/data_sets.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <set>

#include "src/base/clock.h"
#include "src/base/dump_utf8.h"
#include "src/data/data_fingerprint.h"
#include "src/data/formats/published_tables.h"
#include "src/evaluation/source_order.h"
#include "src/evaluation/tasks/pass.h"
#include <tessera/base/text.h>
#include <tessera/io/atomic_file.h>

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Choice = config::Value<config::ModuleSettings>;
using Names = std::vector<std::string>;

config::Node text_node(const std::string& text) {
  return config::Node::scalar(text, {}, true);
}

config::Node list_node(const Names& texts) {
  std::vector<config::Node> items;
  for (const std::string& text : texts) items.push_back(text_node(text));
  return config::Node::sequence(std::move(items));
}

/// Returns the names that a data set's folder may have.
Names folder_names(const DataSetSettings& set) {
  Names keys = {set.key}, out;
  for (const char* prefix : {"fairness/", "retrieval/", "misc/"})  // published folders are named without them
    if (set.key.starts_with(prefix)) keys.insert(keys.begin(), set.key.substr(std::string(prefix).size()));
  for (std::string& key : keys) {
    std::ranges::replace(key, '/', '-');
    out.insert(out.end(), {"wds_" + key + "_test", "wds_" + key});
  }
  std::ranges::copy(set.folders, std::back_inserter(out));
  return out;
}

/// Returns the stripped lines of a file. Blank lines count, because a class may have no name.
Names lines_of(const fs::path& path) {
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) user_error(path.string(), ": there is no such file; the data set's folder must have it");
  Names out;
  for (const std::string& line : split_lines(io::read_file(path.string()))) out.emplace_back(strip(line));
  if (out.empty()) user_error(path.string(), ": is empty");
  return out;
}

/// Returns the pattern of a split's shards, 0.tar, 1.tar, ..., in their numeric order; empty if there are none.
std::string shards_in(const fs::path& split) {
  std::error_code ignored;
  std::int64_t count = 0;
  if (const fs::path list = split / "nshards.txt"; fs::is_regular_file(list, ignored)) {
    const Names lines = lines_of(list);
    if (lines[0].empty() || lines[0].size() > 6 || lines[0].find_first_not_of("0123456789") != std::string::npos || lines[0] == "0")
      user_error(list.string(), ": expected the number of shards, got \"", lines[0], "\"");
    count = std::stoll(lines[0]);
  } else {
    while (fs::is_regular_file(split / concat(count, ".tar"), ignored)) ++count;
  }
  return count == 0 ? "" : (split / concat("{0..", count - 1, "}.tar")).string();
}

config::ModuleSettings source_of(const DataSetSettings& set, const fs::path& folder, const std::string& split = "test") {
  if (const std::string shards = shards_in(folder / split); !shards.empty() && set.task.name != "winogavil") {
    config::ModuleSettings out{"webdataset"};
    out.settings.set("path", text_node(shards));
    if (set.task.name == "retrieval") out.settings.set("caption_lines", config::Node::scalar("true"));
    if (!set.npy_fields.empty()) out.settings.set("npy_fields", list_node(set.npy_fields));
    return out;
  }
  const Names tables = published_tables(folder.string(), {.configuration = "", .split = split}).files;
  if (tables.empty()) user_error(folder.string(), ": has neither shards (", split, "/0.tar, ...) nor Parquet files of the split ", split);
  config::ModuleSettings out{set.task.name == "winogavil" ? "winogavil" : "parquet"};
  out.settings.set("path", list_node(tables));
  return out;
}

/// Returns the task of a data set in a folder.
config::ModuleSettings task_in(const fs::path& folder, FoundDataSet& found) {
  config::ModuleSettings task = found.set.task;
  task.settings.set("source", Choice::dump(source_of(found.set, folder)));
  if (task.name == "linear_probe" || task.name == "knn") task.settings.set("train", Choice::dump(source_of(found.set, folder, "train")));
  if (task.name != "zero_shot" && task.name != "faces") return task;
  const Names classes = lines_of(folder / "classnames.txt");
  const Names templates = lines_of(folder / "zeroshot_classification_templates.txt");
  found.classes = std::ssize(classes);
  found.prompts = found.classes * std::ssize(templates);
  task.settings.set("classes", list_node(classes));
  task.settings.set("templates", list_node(templates));
  if (task.name == "zero_shot" && task.settings.find("topk") == nullptr)
    task.settings.set("topk", config::Value<std::vector<std::int64_t>>::dump(found.classes < 5 ? std::vector<std::int64_t>{1}
                                                                                               : std::vector<std::int64_t>{1, 5}));
  return task;
}

/// Returns a metric's name in CLIP_benchmark's and WILDS' files.
std::string published_name(std::string name) {
  const std::pair<std::string, std::string> begins[] = {
      {"image_to_text_recall@", "text_retrieval_recall@"}, {"text_to_image_recall@", "image_retrieval_recall@"}, {"top1_", "acc_"},
      {"top5_", "acc_top5_"}, {"top", "acc"}, {"mean_per_class", "mean_per_class_recall"}, {"macro_f1", "F1-macro_all"}};
  for (const auto& [ours, theirs] : begins) {
    if (!name.starts_with(ours)) continue;
    name.replace(0, ours.size(), theirs);
    for (const std::string rest : {"_no_other", ""}) {  // acc_region_worst -> acc_worst_region
      if (!name.ends_with("_worst" + rest)) continue;
      name.resize(name.size() - std::string("_worst").size() - rest.size());
      name.insert(theirs.size(), "worst_");
      name += rest;
      break;
    }
    break;
  }
  return name;
}

/// Returns the mean of the task's metrics that make up the score; nullopt if one was not measured.
std::optional<double> score_of(const DataSetSettings& set, const TaskResult& result) {
  double sum = 0;
  for (const std::string& name : set.measured) {
    const auto found = std::ranges::find(result.metrics, name, &std::pair<std::string, double>::first);
    if (set.metric.empty() || found == result.metrics.end() || !std::isfinite(found->second)) return std::nullopt;
    sum += found->second;
  }
  return sum / static_cast<double>(set.measured.size());
}

nlohmann::json number_or_null(const std::optional<double>& value) {
  return value ? nlohmann::json(*value) : nlohmann::json(nullptr);
}

/// Returns what DataComp's evaluator writes about a data set.
nlohmann::json published_line(const DataSetSettings& set, const TaskResult& result, const std::optional<double>& score) {
  nlohmann::json metrics = nlohmann::json::object();
  for (const auto& [name, value] : result.metrics) metrics[published_name(name)] = value;
  if (set.task.name == "zero_shot" && !metrics.contains("acc5")) metrics["acc5"] = nullptr;
  // WILDS has names of its own for these numbers. Its worst group is that of the only field of groups.
  const auto repeat = [&](const std::string& name, const std::string& as) {
    if (metrics.contains(name)) metrics[as] = metrics[name];
  };
  const config::Node* groups = set.task.settings.find("groups");
  if (groups != nullptr || metrics.contains("F1-macro_all")) repeat("acc1", "acc_avg");
  if (metrics.contains("F1-macro_all")) repeat("mean_per_class_recall", "recall-macro_all");
  if (groups != nullptr && groups->is_sequence() && groups->items().size() == 1) {
    const std::string field = groups->items()[0].text();
    repeat("acc_worst_" + field, "acc_wg");
    if (set.metric.starts_with("acc_top5")) repeat("acc5", "acc_top5_avg");
  }
  if (score) metrics[set.metric] = *score;
  metrics["main_metric"] = number_or_null(score);
  return {{"key", set.key}, {"dataset", set.name}, {"metrics", metrics}};
}

/// Returns the number of samples that DataComp counts: instances of WinoGAViL, otherwise images.
std::int64_t samples_of(const TaskResult& result) {
  return result.task == "winogavil" ? result.texts : result.samples;
}

std::string differing(const FoundDataSet& found, std::int64_t samples) {
  Names out;
  const auto compare = [&](std::int64_t measured, std::int64_t published, const char* what) {
    if (published > 0 && measured > 0 && measured != published)
      out.push_back(concat(with_thousands(measured), " ", what, " instead of the published ", with_thousands(published)));
  };
  compare(samples, found.set.samples, "samples");
  compare(found.classes, found.set.classes, "classes");
  return out.empty() ? "" : join_names(out);
}

double seconds_of(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return seconds_since(start);
}

struct Speed {
  double image = 0, text = 0;  // seconds for one
  std::int64_t images = 0;     // number of images that were measured
};

/// Measures the time of some images of a task's data, and of some texts.
Speed measure_speed(const config::ModuleSettings& task, const Embedder& embedder, const EvaluationContext& context) {
  constexpr double kLongEnough = 1;  // seconds
  EvaluationContext silent = context;
  silent.progress = nullptr;
  const SourceOrder order{.key = task.name + ".source", .choice = Choice::read(*task.settings.find("source"), "source", {})};
  Pass pass{.embedder = embedder, .context = silent, .source = open_source(order, context), .reads_pixels = false};
  pass.order = order;
  Speed out;
  for (pass.max_samples = 4;
       out.image * static_cast<double>(out.images) < kLongEnough && out.images < pass.source->size();
       pass.max_samples *= 4) {
    TaskResult unused;
    const double seconds = seconds_of([&] { pass.run(unused, [](const auto&, const auto&) {}); });
    out = {.image = seconds / static_cast<double>(unused.samples), .images = unused.samples};
    if (unused.samples < pass.max_samples) break;
  }
  constexpr int kTexts = 32;
  if (embedder.takes_texts())
    out.text = seconds_of([&] { embedder.encode_texts(Names(kTexts, "a photo of a vehicle."), {}); }) / kTexts;
  return out;
}

nlohmann::json to_stored(const TaskResult& result) {
  nlohmann::json out = to_json(result);
  out["values"] = nlohmann::json::array();
  for (const auto& [name, value] : result.metrics) out["values"].push_back({name, value});
  out["full_seconds"] = result.seconds;
  out["mark"] = std::to_string(result.sample_mark);
  out["warnings"] = result.warnings;
  out["rule"] = result.rule;
  out["outcomes"] = report::to_json(std::vector<report::TaskOutcomes>{make_outcomes(result)});
  for (const auto& card : result.cards) out["cards"].push_back(*card);
  return out;
}

TaskResult from_stored(const nlohmann::json& json, const config::Node& settings, const std::string& path) {
  TaskResult out;
  out.task = json.at("task");
  out.data = json.at("data");
  out.settings = settings;
  out.classes = json.value("classes", Names());
  out.prompts = json.value("prompts", Names());
  for (const auto& each : json.at("values")) out.metrics.emplace_back(each.at(0), each.at(1).is_null() ? NAN : each.at(1).get<double>());
  out.samples = json.at("samples");
  out.texts = json.value("texts", std::int64_t{0});
  out.equal_images = json.value("equal_images", std::int64_t{0});
  out.skipped = json.at("skipped").get<std::map<std::string, std::int64_t>>();
  out.seconds = json.at("full_seconds");
  out.rule = json.at("rule");
  for (const auto& [name, value] : out.metrics) out.rules[name] = rule_in(json, name);
  if (json.contains("cards"))
    for (const auto& card : json.at("cards")) out.add_card(card);
  for (auto& task : report::task_outcomes(json.at("outcomes"), path)) out.outcomes = std::move(task.metrics);
  out.sample_mark = std::stoull(json.at("mark").get<std::string>());
  if (json.contains("intervals"))
    for (const auto& [name, ends] : json.at("intervals").items()) out.intervals[name] = {ends.at(0), ends.at(1)};
  if (json.contains("chance")) out.chance = json.at("chance").get<std::map<std::string, double>>();
  out.notes = json.value("notes", Names());
  out.warnings = json.at("warnings").get<Names>();
  return out;
}

}  // namespace

void find_data_sets(const std::string& root, SuiteSettings& suite) {
  std::error_code ignored;
  for (std::size_t i = 0; i < suite.sets.size(); ++i) resolve_tasks({suite.sets[i].task}, concat("sets[", i, "].task"));
  const auto has_source = [](const DataSetSettings& set) { return set.task.settings.find("source") != nullptr; };
  const bool needs_root = !std::ranges::all_of(suite.sets, has_source);
  if (needs_root && root.empty())
    user_error("--suite ", suite.name,
               ": give --data FOLDER, the folder that has the data sets' folders (wds_imagenet1k_test, ...)");
  if (needs_root && !fs::is_directory(root, ignored))
    user_error("--data ", root, ": is no folder; --suite ", suite.name, " looks for its data sets in one");
  for (const DataSetSettings& set : suite.sets) {
    FoundDataSet& found = suite.found.emplace_back(FoundDataSet{.set = set});
    if (has_source(set)) {
      found.task = suite.tasks.size();
      suite.tasks.push_back(set.task);
      continue;
    }
    const Names names = folder_names(set);
    const auto name = std::ranges::find_if(
        names, [&](const std::string& each) { return fs::is_directory(fs::path(root) / each, ignored); });
    if (name == names.end()) continue;
    const fs::path folder = fs::absolute(root) / *name;
    try {
      suite.tasks.push_back(task_in(folder, found));
      found.task = suite.tasks.size() - 1;
    } catch (const UserError& error) {
      found.problem = error.what();
    }
  }
  if (!suite.tasks.empty()) return;
  for (const FoundDataSet& found : suite.found)
    if (!found.problem.empty()) user_error(found.problem);
  user_error("--data ", root, ": has none of the ", suite.sets.size(), " data sets of ", suite.name, "; a folder is called ",
             folder_names(suite.sets.front()).front(), ", for example");
}

std::string SuiteMean::title() const {
  return measured == of ? name : concat("partial ", name, " (", measured, " of ", of, ")");
}

std::vector<SuiteMean> suite_means(const std::vector<DataSetSettings>& sets, const std::map<std::string, double>& scores) {
  Names groups;
  for (const DataSetSettings& set : sets)
    if (!set.group.empty() && !contains(groups, set.group)) groups.push_back(set.group);
  groups.emplace_back();  // all data sets
  std::vector<SuiteMean> out;
  for (const std::string& group : groups) {
    SuiteMean mean{.name = group.empty() ? "Average" : group};
    double sum = 0;
    for (const DataSetSettings& set : sets) {
      if (set.metric.empty() || (!group.empty() && set.group != group)) continue;
      ++mean.of;
      if (const auto score = scores.find(set.name); score != scores.end() && std::isfinite(score->second)) {
        ++mean.measured;
        sum += score->second;
      } else {
        mean.missing.push_back(set.name);
      }
    }
    if (mean.measured > 0) mean.value = sum / static_cast<double>(mean.measured);
    out.push_back(std::move(mean));
  }
  return out;
}

void print_plan(const SuiteSettings& suite, const std::string& root, const Embedder& embedder, const EvaluationContext& context,
                const FinishedTasks& finished) {
  Names missing, kept, lines;
  std::optional<Speed> speed;
  std::set<std::string> seen;  // fingerprints of the data so far
  double total = 0;
  std::int64_t images = 0, sets = 0;
  for (const FoundDataSet& found : suite.found) {
    if (!found.task && found.problem.empty()) missing.push_back(found.set.name);
    if (!found.task) continue;
    ++sets;
    const config::ModuleSettings& task = suite.tasks[*found.task];
    if (finished.has(*found.task)) {
      kept.push_back(found.set.name);
      continue;
    }
    try {
      const auto source = sources().make(Choice::read(*task.settings.find("source"), "source", {}), "source");
      const bool is_new = seen.insert(to_json(compute_fingerprints(*source))).second;  // languages may share their images
      const std::int64_t size = is_new ? source->size() : 0;
      if (!speed) speed = measure_speed(task, embedder, context);
      const double seconds = static_cast<double>(size) * speed->image + static_cast<double>(found.prompts) * speed->text;
      lines.push_back(concat("  ", found.set.name, ": ", with_thousands(source->size()), " images, ",
                             with_thousands(found.prompts), " prompts, about ", format_duration(seconds)));
      total += seconds;
      images += size;
    } catch (const UserError& error) {
      lines.push_back(concat("  ", found.set.name, ": ", error.what()));
    }
  }
  std::cerr << suite.name << ": " << sets << " of " << suite.found.size() << " data sets are "
            << (root.empty() ? "there" : "in " + root) << "; " << with_thousands(images)
            << " images are to be embedded";
  if (speed)
    std::cerr << ", about " << format_duration(total) << " (" << fixed(1000 * speed->image, 1) << " ms per image, measured on "
              << speed->images << ")";
  std::cerr << "\n";
  for (const std::string& line : lines) std::cerr << line << "\n";
  if (!kept.empty()) std::cerr << "  finished before, not measured again: " << join_names(kept) << "\n";
  if (!missing.empty()) std::cerr << "  missing: " << join_names(missing) << "\n";
  std::cerr << std::flush;
}

SuiteSummary summarize(const SuiteSettings& suite, const std::vector<std::size_t>& tasks, std::vector<TaskResult>& results,
                       std::vector<TaskFailure>& failures) {
  SuiteSummary out;
  std::map<std::string, double> scores;
  out.json = {{"name", suite.name}, {"sets", nlohmann::json::array()}, {"means", nlohmann::json::array()}};
  nlohmann::json rows = nlohmann::json::array();
  for (const FoundDataSet& found : suite.found) {
    const DataSetSettings& set = found.set;
    nlohmann::json entry = {{"name", set.name}, {"key", set.key}, {"group", set.group}, {"metric", set.metric}, {"status", "missing"}};
    const auto measured = found.task ? std::ranges::find(tasks, *found.task) : tasks.end();
    std::string remark;
    if (measured != tasks.end()) {
      TaskResult& result = results[static_cast<std::size_t>(measured - tasks.begin())];
      result.data = concat(suite.name, ": ", set.name);
      const std::optional<double> score = score_of(set, result);
      if (score) scores[set.name] = *score;
      remark = differing(found, samples_of(result));
      entry["status"] = remark.empty() ? "measured" : "measured, not as published";
      entry["score"] = number_or_null(score);
      entry["samples"] = samples_of(result);
      entry["metrics"] = published_line(set, result, score).at("metrics");
      out.lines += dump_utf8(published_line(set, result, score)) + "\n";
      out.result.samples += result.samples;
    } else if (found.task || !found.problem.empty()) {
      entry["status"] = "failed";
      remark = found.problem;
      if (!found.task) failures.push_back({set.task.name, concat(set.name, ": ", remark), "sets", set.task.settings});
      for (TaskFailure& failure : failures) {
        if (!found.task || failure.place != task_place(suite.tasks, *found.task, "tasks")) continue;
        remark = failure.reason;
        failure.reason = concat(set.name, ": ", remark);
      }
    }
    if (!remark.empty()) entry["remark"] = remark;
    rows.push_back({set.name, set.metric, scores.contains(set.name) ? fixed(scores.at(set.name), 4) : "-", entry.at("status"), remark});
    out.json["sets"].push_back(std::move(entry));
  }
  std::size_t width = 0;
  for (const auto& row : rows) width = std::max(width, row[0].get_ref<const std::string&>().size());
  const auto line = [&](const std::string& name, const std::string& value, const std::string& rest) {
    out.table += concat(name, std::string(std::max(width, name.size()) - name.size() + 2, ' '), value,
                        rest.empty() ? "" : "  ", rest, "\n");
  };
  for (const auto& row : rows) {
    const std::string metric = row[1], status = row[3], remark = row[4];
    line(row[0], row[2], concat(metric.empty() ? "(no score)" : metric, status.starts_with("measured") ? "" : ", " + status,
                                remark.empty() ? "" : "; " + remark));
  }
  out.table += "\n";
  for (const SuiteMean& mean : suite_means(suite.sets, scores)) {
    out.json["means"].push_back({{"name", mean.name},
                                 {"value", number_or_null(mean.value)},
                                 {"measured", mean.measured},
                                 {"of", mean.of},
                                 {"partial", mean.measured < mean.of},
                                 {"missing", mean.missing}});
    const std::string count = concat("(", mean.measured, " of ", mean.of, ")");
    line(mean.measured == mean.of ? mean.name : "partial " + mean.name, mean.value ? fixed(*mean.value, 4) : "-", count);
    if (mean.value) out.result.add_share(mean.title(), *mean.value);
    if (mean.name == "Average" && !mean.missing.empty()) out.result.notes.push_back("without a score: " + join_names(mean.missing));
  }
  out.result.task = suite.name;
  out.result.settings = config::Node::map();
  out.result.data = concat(suite.name, ", ", results.size(), " of ", suite.found.size(), " data sets");
  out.result.rule =
      "The mean of the scores of the data sets of a group, and of all data sets that have a score, each with the same "
      "weight.";
  out.result.add_card({{"type", "table"},
                       {"title", "Data sets"},
                       {"header", {"Data set", "Metric", "Score", "Status", "Remark"}},
                       {"rows", rows}});
  return out;
}

FinishedTasks::FinishedTasks(std::string folder, const SuiteSettings& suite, nlohmann::json origin, bool overwrite)
    : folder_(std::move(folder)), suite_(suite), origin_(std::move(origin)) {
  std::error_code ignored;
  for (const FoundDataSet& found : suite.found) {
    if (!found.task || !fs::is_regular_file(file(*found.task), ignored)) continue;
    const std::string path = file(*found.task);
    auto json = nlohmann::json::parse(io::read_file(path), nullptr, false);
    const nlohmann::json wanted = identity(*found.task);
    Names differing;
    if (json.is_object() && json.contains("of") && json.contains("result"))
      for (const auto& [key, value] : wanted.items())
        if (json.at("of").value(key, nlohmann::json()) != value) differing.push_back(key);
    if (json.is_discarded() || !json.contains("result")) differing.emplace_back("file");
    if (differing.empty())
      kept_[*found.task] = std::move(json.at("result"));
    else if (!overwrite)
      user_error(
          path, ": an evaluation that did not end measured this data set, but its ", join_names(differing),
          differing.size() == 1 ? " differs" : " differ",
          " from this evaluation's: name another folder with --out, or add --overwrite, which measures it again");
  }
}

std::string FinishedTasks::file(std::size_t task) const {
  for (const FoundDataSet& found : suite_.found) {
    if (found.task != task) continue;
    std::string key = found.set.key;
    std::ranges::replace(key, '/', '-');
    return (fs::path(folder_) / (key + ".json")).string();
  }
  return "";
}

nlohmann::json FinishedTasks::identity(std::size_t task) const {
  nlohmann::json out = origin_;
  const config::ModuleSettings& settings = suite_.tasks[task];
  out["settings"] = config::to_json(Choice::dump(settings));
  const auto source = sources().make(Choice::read(*settings.settings.find("source"), "source", {}), "source");
  out["data"] = to_json(compute_fingerprints(*source));
  return out;
}

TaskResult FinishedTasks::result(std::size_t task) const {
  return from_stored(kept_.at(task), suite_.tasks[task].settings, file(task));
}

void FinishedTasks::keep(std::size_t task, const TaskResult& result) const {
  std::error_code problem;
  fs::create_directories(folder_, problem);
  if (problem) user_error(folder_, ": cannot make this folder: ", problem.message());
  io::write_file(file(task), dump_utf8(nlohmann::json{{"of", identity(task)}, {"result", to_stored(result)}}) + "\n");
}

void FinishedTasks::remove() const {
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

}  // namespace tessera
