#include <charconv>
#include <filesystem>
#include <set>

#include <ATen/ATen.h>

#include "src/base/digest.h"
#include "src/base/dump_utf8.h"
#include "src/evaluation/kept_slots.h"
#include "src/evaluation/metrics/slots.h"
#include "src/evaluation/embedder_views.h"
#include "src/evaluation/tasks/candidates.h"
#include <tessera/base/log.h>
#include <tessera/base/text.h>
#include <tessera/io/atomic_file.h>
#include <tessera/io/safetensors.h>

namespace tessera {
namespace {

constexpr const char* kTop = "top:";

bool asks_to_choose(const std::string& option) {
  return option.starts_with(kTop) || option.starts_with("{");
}

SlotSettings written_settings(const std::string& option) {
  if (option.starts_with("{")) return config::read<SlotSettings>(config::parse_yaml(option, "--slots"));
  SlotSettings settings;
  const char* end = option.data() + option.size();
  const auto [rest, error] = std::from_chars(option.data() + std::string_view(kTop).size(), end, settings.top);
  if (error != std::errc() || rest != end || settings.top < 1)
    user_error("--slots ", option, ": expected top: and a number above 0, say top:32");
  return settings;
}

std::string text_of(const config::ModuleSettings& source) {
  return config::to_yaml(config::Value<config::ModuleSettings>::dump(source));
}

/// Returns the data on which a task is measured, if there is any.
std::optional<config::ModuleSettings> source_of(const config::ModuleSettings& task, const SuiteSettings& suite) {
  const config::Node* own = task.settings.find("source");
  if (own == nullptr || own->is_null()) return suite.source;
  return config::Value<config::ModuleSettings>::read(*own, task.name + ".source", {});
}

void warn_of_measured_data(const config::ModuleSettings& chosen_on, const SuiteSettings& suite) {
  constexpr const char* kWayOut =
      ", so results are too good: name other data, --slots '{top: N, source: {name: shapes, split: validation}}'";
  for (const config::ModuleSettings& task : suite.tasks) {
    const auto source = source_of(task, suite);
    if (!source || text_of(*source) != text_of(chosen_on)) continue;
    log::warning("--slots: slots are chosen on the same samples that ", task.name, " measures", kWayOut);
    return;
  }
  if (const config::Node* split = chosen_on.settings.find("split"); split != nullptr && split->text() == "test")
    log::warning("--slots: slots are chosen on samples of a test split", kWayOut);
}

nlohmann::json make_json(const SlotChoice& choice) {
  return {{"slots", choice.slots}, {"of", choice.of}, {"data", choice.data}};
}

KeptSlots through_mask(const std::string& path, const Embedder& model) {
  const io::TensorFile file = io::load_safetensors(path);
  const auto mask = file.tensors.find("mask");
  if (mask == file.tensors.end() || mask->second.dim() != 1)
    user_error(path, ": this is not a mask: slot_mask writes one, a tensor `mask` with one weight per slot");
  return {.embedder = std::make_unique<MaskEmbedder>(model, mask->second, path),
          .slots = {},
          .description = concat("all, under the mask ", path),
          .json = {{"mask", path}}};
}

/// Throws UserError if the list is empty, or has negative or repeated slots.
void check_list(const SlotChoice& choice, const std::string& path) {
  if (choice.slots.empty()) user_error(path, ": `slots` is empty: nothing would be left to compare");
  std::set<std::int64_t> seen;
  for (const std::int64_t slot : choice.slots) {
    if (slot < 0) user_error(path, ": slot ", slot, " is below 0");
    if (!seen.insert(slot).second) user_error(path, ": slot ", slot, " is listed twice");
  }
}

}  // namespace

std::optional<config::Problem> validate(const SlotSettings& settings) {
  if (settings.top == 0) return config::Problem{"top", "is missing: give the number of slots to keep, such as 32"};
  if (!settings.templates.items.empty()) return check_templates(settings.templates);
  return std::nullopt;
}

std::string SlotChoice::describe() const {
  const std::string all = of > 0 ? concat(" of ", of) : "";
  return concat(slots.size(), all, data.empty() ? "" : ", by zero-shot accuracy on " + data);
}

SlotChoice choose_slots(const Embedder& model, std::int64_t count, const SlotSettings& settings, const EvaluationContext& context) {
  if (settings.top > count) user_error("--slots top:", settings.top, ": this model has ", count, " slots");
  const SourceOrder order{.key = "--slots: source", .choice = settings.data.source};
  const auto source = open_source(order, context);
  const Candidates candidates = candidates_for(settings.classes, source, "--slots");
  if (const NamedClasses& matched = candidates.matched; !matched.note.empty())
    log::write(matched.guessed ? log::Level::warning : log::Level::info, "--slots: " + matched.note);
  metrics::SlotMeter meter(embed_classes(model, candidates.names, settings.templates, {.slots = true}).slots);
  TaskResult result;
  Pass pass{.embedder = model,
            .context = context,
            .source = source,
            .max_samples = settings.data.max_samples,
            .required = labeled_or_named(),
            .needs = {.slots = true},
            .reads_pixels = false};
  pass.order = order;
  pass.run(result, [&](const std::vector<EvaluationSample>& samples, const TowerFeatures& features) {
    meter.add(features.slots, at::tensor(candidates.labels_of(samples), at::kLong));
  });
  const at::Tensor accuracy = meter.accuracy();
  const at::Tensor best = metrics::best_slots(accuracy, settings.top);
  return {.slots = to_vector<std::int64_t>(best),
          .accuracy = to_vector<double>(accuracy.index_select(0, best)),
          .of = count,
          .model = {},
          .data = result.data};
}

std::string weights_fingerprint(const std::map<std::string, at::Tensor>& weights) {
  std::uint64_t mark = 0;
  for (const auto& [name, tensor] : weights) {
    const at::Tensor bytes = tensor.cpu().contiguous();
    mark = fingerprint(name, mark);
    mark = fingerprint({static_cast<const char*>(bytes.const_data_ptr()), bytes.nbytes()}, mark);
  }
  return hexadecimal(mark);
}

void write_slots(const std::string& path, const SlotChoice& choice) {
  const nlohmann::json json = {{"slots", choice.slots},
                               {"accuracy", choice.accuracy},
                               {"of", choice.of},
                               {"model", choice.model},
                               {"data", choice.data}};
  io::write_file(path, dump_utf8(json) + "\n");
}

SlotChoice read_slots(const std::string& path, std::int64_t count, const std::string& fingerprint) {
  SlotChoice choice;
  try {
    const auto json = nlohmann::json::parse(io::read_file(path));
    json.at("slots").get_to(choice.slots);
    choice.accuracy = json.value("accuracy", choice.accuracy);
    choice.of = json.value("of", choice.of);
    choice.model = json.value("model", choice.model);
    choice.data = json.value("data", choice.data);
  } catch (const nlohmann::json::exception&) {
    user_error(path, ": this is not a list of slots: expected JSON such as {\"slots\": [3, 17, 5]}");
  }
  check_list(choice, path);
  for (const std::int64_t slot : choice.slots)
    if (slot >= count) user_error(path, ": it lists slot ", slot, ", but this model's slots are 0 to ", count - 1);
  if (choice.of != 0 && choice.of != count)
    user_error(path, ": its slots were chosen from ", choice.of, ", but this model has ", count,
               ": choose them again with --slots top:", choice.slots.size());
  if (!choice.model.empty() && choice.model != fingerprint)
    user_error(path, ": its slots belong to another model (weights ", choice.model, ", here ", fingerprint,
               "): choose them again with --slots top:", choice.slots.size(),
               ", or remove `model` from the file to use them anyway");
  choice.of = count;
  return choice;
}

SlotSettings slot_settings(const std::string& option, const SuiteSettings& suite, const config::Node& run_config) {
  SlotSettings settings = written_settings(option);
  if (!settings.data.source) settings.data.source = run_source(run_config, "data.validation");
  if (!settings.data.source) settings.data.source = suite.source;
  if (!settings.data.source)
    user_error("--slots ", option,
               ": there is no data to choose them on: name some, --slots '{top: 32, source: {name: "
               "shapes, split: validation}}'");
  settings.data.source = sources().resolve(*settings.data.source, "--slots: source");
  const auto zero_shot = std::ranges::find(suite.tasks, "zero_shot", &config::ModuleSettings::name);
  const auto of_task = [&](const char* key, const TextList& otherwise) {
    const config::Node* own = zero_shot == suite.tasks.end() ? nullptr : zero_shot->settings.find(key);
    return own == nullptr ? otherwise : config::Value<TextList>::read(*own, config::join_path("zero_shot", key), {});
  };
  if (settings.classes.items.empty()) settings.classes = of_task("classes", {});
  if (settings.templates.items.empty()) settings.templates = of_task("templates", {kUsualPrompt});
  return settings;
}

KeptSlots keep_slots(const std::string& option, const SuiteSettings& suite, const config::Node& run_config,
                     const InferenceModel& loaded, const Embedder& model, const EvaluationContext& context,
                     const std::string& out) {
  std::error_code ignored;
  if (!asks_to_choose(option) && !std::filesystem::is_regular_file(option, ignored))
    user_error("--slots ", option, ": there is no such file: give top:32, or the slots.json of an evaluation");
  if (option.ends_with(".safetensors")) return through_mask(option, model);
  const std::int64_t count = count_slots(model, "--slots");
  const std::string fingerprint = weights_fingerprint(loaded.file.weights);
  SlotChoice choice;
  if (asks_to_choose(option)) {
    const SlotSettings settings = slot_settings(option, suite, run_config);
    warn_of_measured_data(*settings.data.source, suite);
    choice = choose_slots(model, count, settings, context);
    choice.model = fingerprint;
    write_slots(out + "/slots.json", choice);
  } else {
    choice = read_slots(option, count, fingerprint);
  }
  return {.embedder = std::make_unique<SlotEmbedder>(model, choice.slots),
          .slots = choice.slots,
          .description = choice.describe(),
          .json = make_json(choice)};
}

}  // namespace tessera
