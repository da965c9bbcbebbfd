#include <tessera/training/run/setting_warnings.h>

#include <algorithm>

#include <tessera/base/error.h>
#include <tessera/objectives/contrastive_objective.h>

namespace tessera {
namespace {

// Also true if one of several terms is contrastive.
bool is_contrastive(const Objective& objective) {
  return std::ranges::any_of(objective.modules(), [](const auto& module) {
    return dynamic_cast<const ContrastiveObjective*>(module.get()) != nullptr;
  });
}

}  // namespace

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
  return out;
}

}  // namespace tessera
