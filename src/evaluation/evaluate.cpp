#include <filesystem>
#include <iostream>

#include <ATen/Parallel.h>
#include <nlohmann/json.hpp>

#include "src/base/clock.h"
#include "src/base/digest.h"
#include "src/base/dump_utf8.h"
#include "src/base/progress.h"
#include "src/config/environment.h"
#include "src/data/loading/reported_samples.h"
#include "src/evaluation/checkpoint_pool.h"
#include "src/evaluation/data_sets.h"
#include "src/evaluation/feature_store.h"
#include "src/evaluation/kept_slots.h"
#include "src/evaluation/model_evaluation.h"
#include "src/evaluation/rank_embedder.h"
#include "src/evaluation/word_maps.h"
#include "src/measure/machine.h"
#include "src/models/parameter_count.h"
#include "src/remote/address.h"
#include "src/report/evaluation_page.h"
#include <tessera/base/log.h>
#include <tessera/base/text.h>
#include <tessera/base/version.h>
#include <tessera/evaluation/evaluate.h>
#include <tessera/evaluation/inference.h>
#include <tessera/evaluation/task.h>
#include <tessera/io/atomic_file.h>

namespace tessera {
namespace {

namespace fs = std::filesystem;

/// Returns whether a tensor of the file is a parameter of the objective. These buffers are not parameters: DINO's center, SuperCLIP's
/// counts and the margin of region_contrast.
bool is_objective_parameter(const std::string& name) {
  if (name == "logit_scale" || name == "logit_bias") return true;
  const std::string last = name.substr(name.rfind('.') + 1);
  return name.starts_with("objective.") && last != "center" && last != "document_count" && last != "caption_count" && last != "margin";
}

ParameterCount count_parameters(const InferenceModel& loaded) {
  ParameterCount count = count_parameters(*loaded.model);
  for (const auto& [name, weights] : loaded.file.weights)
    if (is_objective_parameter(name)) count.objective += weights.numel();
  return count;
}

/// Returns everything except the weights that determines a model's embeddings.
nlohmann::json model_settings_of(const ModelFile& file) {
  return {{"model", config::to_json(config::dump(file.model))},
          {"tokenizer", file.tokenizer.name},
          {"tokenizer_settings", config::to_json(file.tokenizer.settings)},
          {"vocabulary", fingerprint(file.vocabulary)}};
}

/// Returns a description of the evaluation's inputs, for results.json.
nlohmann::json origin_of(const InferenceModel& loaded, const EvaluateOptions& options, const SuiteSettings& suite) {
  const auto data = [](const std::optional<config::ModuleSettings>& source) -> nlohmann::json {
    if (!source) return nullptr;
    return config::to_json(config::Value<config::ModuleSettings>::dump(*source));
  };
  return {{"checkpoint", options.checkpoint},
          {"model_file", loaded.path},
          {"weights", weights_fingerprint(loaded.file.weights)},
          {"model_settings", hexadecimal(fingerprint(model_settings_of(loaded.file).dump()))},
          {"parameters", describe(count_parameters(loaded))},
          {"source", data(suite.source)},
          {"train", data(suite.train)},
          {"batch_size", suite.batch_size},
          {"command", options.command},
          {"version", version()},
          {"commit", commit()},
          {"date", utc_now()},
          {"device", machine_name(loaded.device)}};
}

/// Returns a text such as "224 x 224 pixels, 14 x 14 patches". In naflex mode, the text states the size limits instead.
std::string describe_images(const DualEncoder& model) {
  const Preprocessing& preprocessing = model.settings().preprocessing;
  const config::Size grid = model.grid(), size = preprocessing.image_size;
  if (!keeps_shapes(preprocessing)) return concat(size.height, " x ", size.width, " pixels, ", grid.height, " x ", grid.width, " patches");
  const config::Size patch = *preprocessing.patch_size;
  return concat("original shape, at most ", preprocessing.max_patches, " patches of ", patch.height, " x ", patch.width, " pixels");
}

report::ReportHead head_of(const InferenceModel& loaded, const std::string& run_folder, const SuiteSettings& suite,
                   const nlohmann::json& origin) {
  const ModelSettings& settings = loaded.model->settings();
  report::ReportHead head;
  head.title = run_folder.empty() ? fs::path(loaded.path).filename().string() : fs::path(run_folder).filename().string();
  head.facts = {
      {"Image tower", concat(settings.image.encoder.name, " + ", settings.image.readout.name)},
      {"Text tower", settings.text ? concat(settings.text->encoder.name, " + ", settings.text->readout.name) : "none"},
      {"Parameters", origin.at("parameters")},
      {"Embedding width", std::to_string(loaded.model->embed_dim())},
      {"Image", describe_images(*loaded.model)},
      {"Tokenizer", loaded.tokenizer == nullptr ? "none"
                                                : concat(loaded.tokenizer->name(), ", ",
                                                         with_thousands(loaded.tokenizer->vocab_size()), " entries")}};
  const auto step = loaded.file.extra.find("step");
  if (step != loaded.file.extra.end()) head.facts.emplace_back("Step", step->second);
  const config::Node config = run_config_of(loaded);
  if (const config::Node* objective = config.find("objective");
      objective != nullptr && objective->find("name") != nullptr) {
    head.facts.emplace_back("Objective", objective->find("name")->text());
  }
  head.facts.emplace_back("Model file", loaded.path);
  head.facts.emplace_back("Device", origin.at("device"));
  head.facts.emplace_back("Date", origin.at("date"));
  head.facts.emplace_back("Version", version_line());
  if (const std::string command = origin.at("command"); !command.empty()) head.facts.emplace_back("Command", command);
  if (!run_folder.empty()) head.curves = report::read_run_curves(run_folder);
  for (const auto& [key, source] : {std::pair("source", &suite.source), std::pair("train", &suite.train)})
    if (*source) head.data.emplace_back(key, config::Value<config::ModuleSettings>::dump(**source));
  return head;
}

/// Returns the content of results.json: `origin`, the results and the failures.
nlohmann::json results_of(const InferenceModel& loaded, const nlohmann::json& origin,
                          const std::vector<TaskResult>& results, const std::vector<TaskFailure>& failures) {
  auto tasks = nlohmann::json::array(), failed = nlohmann::json::array();
  for (const TaskResult& result : results) tasks.push_back(to_json(result));
  for (const TaskFailure& failure : failures) failed.push_back(to_json(failure));
  nlohmann::json out = origin;
  out["tasks"] = tasks;
  out["failed"] = failed;
  const auto step = loaded.file.extra.find("step");
  if (step != loaded.file.extra.end()) out["step"] = nlohmann::json::parse(step->second, nullptr, false);
  if (out.contains("step") && out["step"].is_discarded()) out["step"] = step->second;
  return out;
}

bool holds_results(const std::string& folder) {
  std::error_code ignored;
  return fs::exists(fs::path(folder) / "results.json", ignored) || fs::exists(fs::path(folder) / "report.html", ignored);
}

/// Returns whether the results are those of the tasks. The task of add_words_task(), or the means of a suite of data sets, may follow them.
bool same_tasks(const nlohmann::json& results, const std::vector<config::ModuleSettings>& tasks) {
  const auto list = results.find("tasks");
  if (list == results.end() || !list->is_array() || list->size() < tasks.size()) return false;
  const std::string last = list->empty() ? "" : list->back().value("task", "");
  const bool has_more = list->size() == tasks.size() + 1 && (last == "words" || results.contains("suite"));
  if (list->size() > tasks.size() && !has_more) return false;
  for (std::size_t i = 0; i < tasks.size(); ++i)
    if (list->at(i).value("task", "") != tasks[i].name ||
        list->at(i).value("settings", nlohmann::json()) != config::to_json(tasks[i].settings))
      return false;
  return true;
}

bool same_origin(const nlohmann::json& results, const nlohmann::json& origin) {
  const auto keys = {"weights", "model_settings", "source", "train", "batch_size", "version", "commit"};
  return std::all_of(keys.begin(), keys.end(), [&](const char* key) { return results.contains(key) && results.at(key) == origin.at(key); });
}

/// Returns the last of the folders FOLDER, FOLDER-2, FOLDER-3, ... (FOLDER is `usual`) whose results can be reused. Results can be reused
/// if their weights, data, batch size and version equal those in `origin`, their tasks and task settings equal `tasks`, all slots were
/// used, and no task failed. Returns an empty string if there is no such folder.
std::string earlier_results(const std::string& usual, const nlohmann::json& origin, const std::vector<config::ModuleSettings>& tasks) {
  std::string found, folder = usual;
  std::error_code ignored;
  for (int number = 2; fs::is_regular_file(folder + "/results.json", ignored); ++number) {
    const auto json = nlohmann::json::parse(io::read_file(folder + "/results.json"), nullptr, false);
    const bool whole = json.is_object() && !json.contains("slots") && json.contains("failed") && json["failed"].empty();
    if (whole && same_origin(json, origin) && same_tasks(json, tasks) &&
        fs::is_regular_file(folder + "/samples.json", ignored))
      found = folder;
    folder = concat(usual, "-", number);
  }
  return found;
}

std::string usual_folder(const std::string& run_folder, const std::string& model_file) {
  if (remote::is_remote(model_file)) return "evaluation";
  const fs::path beside = run_folder.empty() ? fs::path(model_file).parent_path() : fs::path(run_folder);
  return (beside / "evaluation").string();
}

struct Outcomes {
  std::vector<TaskResult> results;
  std::vector<std::size_t> tasks;  // the index of each result's task
  std::vector<TaskFailure> failures;
};

/// Returns a text that contains everything on which embeddings depend.
std::string features_key(const InferenceModel& loaded, const KeptSlots& kept, const std::string& slots_option) {
  nlohmann::json key = model_settings_of(loaded.file);
  key["weights"] = weights_fingerprint(loaded.file.weights);
  key["slots"] = kept.slots;
  key["device"] = loaded.device.is_cuda() ? "cuda" : "cpu";
  if (kept.embedder != nullptr && kept.slots.empty()) key["mask"] = fingerprint(io::read_file(slots_option));
  return key.dump();
}

/// The embedder that the tasks use. With a `folder`, it caches embeddings in this folder. Without a folder but with several tasks, it
/// caches embeddings in memory, because the tasks may need the same embeddings. Otherwise, it caches nothing.
class SharedFeatures {
 public:
  /// `one_each` tells that no two tasks have the same images; begin_task() then forgets the images of earlier tasks.
  SharedFeatures(const Embedder& model, const std::string& folder, std::size_t tasks, bool one_each,
                 const std::function<std::string()>& key)
      : plain_(model), folder_(folder), one_each_(one_each) {
    if (!model.compares_by_cosine() || model.token_space() > 0 || (folder.empty() && tasks < 2)) return;
    if (!folder.empty()) key_ = key();
    if (one_each && folder.empty()) text_cache_.emplace(plain_, text_store_.emplace("", ""));
    renew();
  }
  const Embedder& embedder() const { return cached_ ? *cached_ : plain_; }
  void save() {
    if (store_) store_->save();
  }
  void begin_task() {
    if (store_ && one_each_) renew();
  }

 private:
  void renew() {
    cached_.reset();
    cached_.emplace(text_cache_ ? static_cast<const Embedder&>(*text_cache_) : plain_, store_.emplace(folder_, key_));
  }

  const Embedder& plain_;
  const std::string folder_;
  const bool one_each_;
  std::string key_;
  std::optional<FeatureStore> text_store_, store_;  // the texts of all tasks, if store_ does not outlive a task
  std::optional<CachedEmbedder> text_cache_, cached_;
};

/// Appends the task `words` to the tasks of the run itself (no --suite, --task or --query), if the run's objective compares patches with
/// words and the task fits the data.
void add_words_task(const EvaluateOptions& options, const Embedder& embedder, const EvaluationContext& context, SuiteSettings& suite) {
  const bool chosen = !options.suite.empty() || !options.task.empty() || !options.queries.empty();
  const bool there = std::ranges::any_of(suite.tasks, [](const auto& task) { return task.name == "words"; });
  if (chosen || there || !options.images || !WordMaps::are_trained(context)) return;
  const config::ModuleSettings words = resolve_tasks({{"words"}}, "tasks").front();
  try {
    check_task(words, embedder, context);
    suite.tasks.push_back(words);
  } catch (const UserError&) {
    // The data have no captions, or the model no texts.
  }
}

void make_folder(const std::string& out) {
  std::error_code problem;
  fs::create_directories(out, problem);
  if (problem) user_error("--out ", out, ": cannot make this folder: ", problem.message());
}

/// Runs the tasks that fit their data. If no task does, throws the UserError of the first task, before the output folder exists. With
/// `finished`, takes the results that it has, and keeps the others there.
Outcomes run_tasks(const std::vector<config::ModuleSettings>& tasks, SharedFeatures& features, EvaluationContext& context,
                   const FinishedTasks* finished) {
  Outcomes out;
  std::vector<std::size_t> fitting;
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    try {
      if (finished == nullptr || !finished->has(i)) check_task(tasks[i], features.embedder(), context);
      fitting.push_back(i);
    } catch (const UserError& error) {
      out.failures.push_back({tasks[i].name, error.what(), task_place(tasks, i, "tasks"), tasks[i].settings});
      if (i + 1 == tasks.size() && fitting.empty()) throw UserError(out.failures.front().reason);
    }
  }
  make_folder(context.out);
  for (const std::size_t i : fitting) {
    if (finished != nullptr && finished->has(i)) {
      out.results.push_back(finished->result(i));
      out.tasks.push_back(i);
      continue;
    }
    features.begin_task();
    Progress progress(tasks.size() > 1 ? concat(tasks[i].name, " (", i + 1, " of ", tasks.size(), ")") : tasks[i].name, "images");
    context.progress = [&](std::int64_t done, std::int64_t total) { progress.show(done, total); };
    auto outcome = try_task(tasks, i, "tasks", features.embedder(), context);
    if (auto* failure = std::get_if<TaskFailure>(&outcome)) {
      out.failures.push_back(std::move(*failure));
    } else {
      out.results.push_back(std::get<TaskResult>(std::move(outcome)));
      out.tasks.push_back(i);
      if (finished != nullptr) finished->keep(i, out.results.back());
    }
    features.save();
  }
  context.progress = nullptr;
  return out;
}

}  // namespace

std::string output_folder(const EvaluateOptions& options, const std::string& usual) {
  if (options.overwrite) return options.out.empty() ? usual : options.out;
  if (!options.out.empty()) {
    if (holds_results(options.out))
      user_error("--out ", options.out, ": holds the results of an earlier evaluation: name another folder, or add ", "--overwrite");
    return options.out;
  }
  std::string folder = usual;
  for (int number = 2; holds_results(folder); ++number) folder = concat(usual, "-", number);
  return folder;
}

std::string run_folder_of(const std::string& model_file) {
  if (remote::is_remote(model_file)) return "";
  fs::path folder = fs::absolute(model_file).parent_path();
  for (int level = 0; level < 3 && !folder.empty(); ++level, folder = folder.parent_path()) {
    std::error_code ignored;
    if (fs::exists(folder / "metrics.jsonl", ignored)) return folder.string();
  }
  return "";
}

config::Node run_config_of(const InferenceModel& loaded) {
  const auto found = loaded.file.extra.find("config");
  if (found == loaded.file.extra.end()) return config::Node::map();
  return config::expand_environment(config::parse_yaml(found->second, loaded.path + " (config)"));
}

/// Warns of a learned temperature that is missing or unusable, if a task computes probabilities with it.
void warn_of_logit_scale(const InferenceModel& loaded, const SuiteSettings& suite) {
  const bool used = std::ranges::any_of(
      suite.tasks, [](const auto& task) { return task.name == "zero_shot" || task.name == "segmentation"; });
  if (used && !stored_logit_scale(loaded.file.weights))
    log::warning(loaded.path, ": has no usable logit_scale: probabilities are computed with ", kUsualScale, ", CLIP's maximum");
}

ModelEvaluation evaluate_model(const EvaluateOptions& options, bool reuse) {
  if (options.threads) at::set_num_threads(static_cast<int>(*options.threads));
  check_data_options(options);  // checked first, because reading the weights may take long
  const InferenceModel loaded = load_for_inference(options.checkpoint, options.device, options.reading);
  const std::string run_folder = run_folder_of(loaded.path);
  SuiteSettings suite = load_suite(options, run_config_of(loaded));
  const std::string usual = usual_folder(run_folder, loaded.path);
  const nlohmann::json origin = origin_of(loaded, options, suite);
  ModelEvaluation evaluation{.folder = "", .model_file = loaded.path, .run_folder = run_folder};
  if (reuse && options.slots.empty()) evaluation.folder = earlier_results(usual, origin, suite.tasks);
  evaluation.reused = !evaluation.folder.empty();
  if (evaluation.reused) return evaluation;
  const std::string out = output_folder(options, usual);
  evaluation.folder = out;

  EvaluationContext context;
  context.batch_size = suite.batch_size;
  context.threads = options.threads.value_or(suite.threads);
  context.images = options.images;
  context.out = out;
  warn_of_logit_scale(loaded, suite);
  context.logit_scale = logit_scale_of(loaded.file.weights);
  if (options.run_loss) context.loss = options.run_loss(loaded);
  context.pool = checkpoint_pool(loaded);
  context.widths = nested_widths(loaded.file, loaded.path);
  context.reported = std::make_shared<ReportedSamples>();
  context.vocabulary_texts = std::make_shared<std::map<std::uint64_t, TowerFeatures>>();
  if (suite.source) context.source = sources().make(*suite.source, "source");
  const auto needs_train = [](const config::ModuleSettings& task) {
    const config::Node* train = task.settings.find("train");
    return train != nullptr && train->is_null();
  };
  if (suite.train && std::any_of(suite.tasks.begin(), suite.tasks.end(), needs_train)) {
    context.train_source = sources().make(*suite.train, "train");
  }

  const DualEncoderEmbedder whole(loaded.model, loaded.tokenizer);
  std::optional<RankEmbedder> shared;
  if (options.ranks != nullptr) {
    options.ranks->load(options.checkpoint, options.reading, {suite.source, suite.train, context.threads});
    shared.emplace(whole, *options.ranks, context.threads);
    context.ranks = &*shared;
  }
  const Embedder& model = shared ? *shared : static_cast<const Embedder&>(whole);
  KeptSlots kept;
  if (!options.slots.empty())
    kept = keep_slots(options.slots, suite, run_config_of(loaded), loaded, model, context, out);
  const Embedder& embedder = kept.embedder ? *kept.embedder : model;
  context.slots = kept.slots;
  if (!reuse) add_words_task(options, embedder, context, suite);
  const bool has_sets = !suite.sets.empty();
  const bool one_each = has_sets && std::ranges::none_of(suite.sets, [](const DataSetSettings& set) {
                          return set.task.settings.find("source") != nullptr;
                        });
  SharedFeatures features(embedder, options.features_cache, suite.tasks.size(), one_each,
                          [&] { return features_key(loaded, kept, options.slots); });
  std::optional<FinishedTasks> finished;
  if (has_sets) {
    nlohmann::json of = {{"slots", options.slots}, {"images", options.images}};
    for (const char* key : {"weights", "model_settings", "version", "commit"}) of[key] = origin.at(key);
    finished.emplace(out + "/finished", suite, of, options.overwrite);
    print_plan(suite, options.data, embedder, context, *finished);
  }
  Outcomes outcomes_of_tasks = run_tasks(suite.tasks, features, context, finished ? &*finished : nullptr);
  std::vector<TaskResult>& results = outcomes_of_tasks.results;
  std::vector<TaskFailure>& failures = outcomes_of_tasks.failures;
  whole.tell_of_cut_texts();
  SuiteSummary summary;
  if (has_sets) summary = summarize(suite, outcomes_of_tasks.tasks, results, failures);

  std::vector<TaskResult> shown = results;  // cards are shared
  if (has_sets) shown.push_back(summary.result);
  nlohmann::json json = results_of(loaded, origin, shown, failures);
  if (has_sets) json["suite"] = summary.json;
  std::rotate(shown.begin(), shown.begin() + static_cast<std::ptrdiff_t>(results.size()), shown.end());  // the page begins with the means
  report::ReportHead head = head_of(loaded, run_folder, suite, origin);
  if (!options.slots.empty()) {
    json["slots"] = kept.json;
    head.facts.emplace_back("Slots", kept.description);
  }
  std::vector<report::TaskOutcomes> outcomes;
  for (const TaskResult& result : results) outcomes.push_back(make_outcomes(result));
  io::write_file(out + "/samples.json", dump_utf8(report::to_json(outcomes)) + "\n");
  io::write_file(out + "/results.json", dump_utf8(json, 2) + "\n");
  io::write_file(out + "/report.html", report::evaluation_page(head, shown, failures));
  if (has_sets) {
    io::write_file(out + "/eval_results.jsonl", summary.lines);
    if (failures.empty()) finished->remove();
  }
  evaluation.table = has_sets ? summary.table : results_table(results) + "\n";
  if (!options.slots.empty()) evaluation.table += concat("slots:   ", kept.description, "\n");
  evaluation.json = std::move(json);
  evaluation.failures = std::move(failures);
  return evaluation;
}

int evaluate(const EvaluateOptions& options) {
  if (!options.compare.empty()) return compare_models(options);
  const ModelEvaluation evaluation = evaluate_model(options, /*reuse=*/false);
  if (options.json) {
    std::cout << dump_utf8(evaluation.json, 2) << std::endl;
  } else {
    std::cout << evaluation.table << "results: " << evaluation.folder << "/results.json\n"
              << "report:  " << evaluation.folder << "/report.html" << std::endl;
  }
  for (const TaskFailure& failure : evaluation.failures)
    std::cerr << "evaluate: task " << failure.task << " failed: " << failure.reason << std::endl;
  return evaluation.failures.empty() ? 0 : 2;
}

}  // namespace tessera
