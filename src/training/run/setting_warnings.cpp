#include "src/training/run/setting_warnings.h"

#include <algorithm>
#include <cmath>

#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/config/node.h>
#include <tessera/objectives/contrastive_objective.h>

namespace tessera {
namespace {

// Returns true if the objective or one of its terms is contrastive.
bool is_contrastive(const Objective& objective) {
  return std::ranges::any_of(objective.modules(), [](const auto& module) {
    return dynamic_cast<const ContrastiveObjective*>(module.get()) != nullptr;
  });
}

// Lists the settings that count steps, and count more than the run has: "schedule.warmup_steps is 50".
void add_longer(const config::Node& node, const std::string& path, std::int64_t steps, std::vector<std::string>& out) {
  for (const auto& [key, value] : node.members()) {
    const std::string own = config::join_path(path, key);
    if (key.ends_with("_steps") && key != "every_steps" && value.is_scalar() && std::atoll(value.text().c_str()) > steps)
      out.push_back(concat(own, " is ", value.text()));
    add_longer(value, own, steps, out);
  }
  for (std::size_t i = 0; i < node.items().size(); ++i) add_longer(node.items()[i], concat(path, ".", i), steps, out);
}

}  // namespace

std::optional<std::string> longer_than_run(const Config& config) {
  if (config.training.steps == 0 || config.training.epochs) return std::nullopt;
  const auto [from, to] = config.schedule.part;
  const std::int64_t steps = std::llround(static_cast<double>(config.training.steps) / (to - from));
  std::vector<std::string> longer;
  add_longer(config::parse_yaml(to_yaml(config), ""), "", steps, longer);
  if (longer.empty()) return std::nullopt;
  const bool cut = config.schedule.warmup_steps > steps;
  return concat(join_names(longer), ", but ", to - from < 1 ? "the whole schedule of schedule.part" : "the run", " has only ", steps,
                steps == 1 ? " step" : " steps",
                cut ? ": the warm-up is cut to this length, and the learning rate does not fall afterwards" : "",
                ": set them for this length", cut ? "; schedule.warmup_share: 0.05 adapts to it" : "");
}

std::vector<std::string> setting_warnings(const TrainingRun& run, const Config& config, int ranks) {
  std::vector<std::string> out;
  const std::int64_t batch = config.data.loader.batch_size;
  const auto& micro_batch = config.training.micro_batch.samples;
  if (micro_batch && *micro_batch > batch)
    out.push_back(concat("training.micro_batch is ", *micro_batch, ", more than data.loader.batch_size, ", batch,
                         ": the towers process the whole batch at once"));
  if (batch * ranks == 1 && is_contrastive(*run.objective))
    out.push_back(concat("data.loader.batch_size is 1: the objective ", config.objective.name,
                         " compares a pair with the others of its batch, but there are none: use a larger batch"));
  if (const auto line = longer_than_run(config)) out.push_back(*line);
  return out;
}

}  // namespace tessera
