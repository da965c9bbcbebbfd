#include <set>

#include <nlohmann/json.hpp>

#include "src/base/digest.h"
#include "src/base/dump_utf8.h"
#include "src/data/loading/evaluation_reader.h"
#include "src/evaluation/metrics/slots.h"
#include "src/evaluation/slot_choice.h"
#include "src/evaluation/tasks/candidates.h"
#include "src/evaluation/tasks/pass.h"
#include <tessera/base/log.h>
#include <tessera/io/atomic_file.h>

namespace tessera {
namespace {

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

SlotChoice choose_slots(const Embedder& model, std::int64_t count, const SlotSettings& settings,
                        const EvaluationContext& context) {
  if (settings.top > count) user_error("--slots top:", settings.top, ": this model has ", count, " slots");
  const auto source = open_samples(settings.data.source, context.source, "--slots: source");
  const Candidates candidates = candidates_for(settings.classes, *source, "--slots");
  if (const NamedClasses& matched = candidates.matched; !matched.note.empty())
    log::write(matched.guessed ? log::Level::warning : log::Level::info, "--slots: " + matched.note);
  metrics::SlotMeter meter(embed_classes(model, candidates.names, settings.templates, {.slots = true}).slots);
  TaskResult result;
  const Pass pass{.embedder = model,
                  .context = context,
                  .source = source,
                  .max_samples = settings.data.max_samples,
                  .required = labeled_or_named(),
                  .needs = {.slots = true}};
  pass.run(result, [&](const std::vector<EvaluationSample>& samples, const TowerFeatures& features) {
    std::vector<std::int64_t> labels;
    for (const EvaluationSample& sample : samples) labels.push_back(candidates.label_of(sample.sample, *source));
    meter.add(features.slots, at::tensor(labels, at::kLong));
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

}  // namespace tessera
