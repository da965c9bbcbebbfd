#include "src/evaluation/kept_slots.h"

#include <charconv>
#include <filesystem>

#include <ATen/ATen.h>

#include "src/evaluation/slot_embedder.h"
#include <tessera/base/log.h>
#include <tessera/base/text.h>
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

}  // namespace

SlotSettings slot_settings(const std::string& option, const SuiteSettings& suite, const config::Node& run_config) {
  SlotSettings settings = written_settings(option);
  if (!settings.data.source) settings.data.source = run_source(run_config, "data.validation");
  if (!settings.data.source) settings.data.source = suite.source;
  if (!settings.data.source)
    user_error("--slots ", option,
               ": there is no data to choose them on: name some, --slots '{top: 32, source: {name: "
               "shapes, split: validation}}'");
  settings.data.source = sources().resolve(*settings.data.source, "--slots: source");
  const auto zero_shot =
      std::find_if(suite.tasks.begin(), suite.tasks.end(), [](const auto& task) { return task.name == "zero_shot"; });
  const auto of_task =
      zero_shot == suite.tasks.end() ? ZeroShotSettings() : config::read<ZeroShotSettings>(zero_shot->settings);
  if (settings.classes.items.empty()) settings.classes = of_task.classes;
  if (settings.templates.items.empty()) settings.templates = of_task.templates;
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
