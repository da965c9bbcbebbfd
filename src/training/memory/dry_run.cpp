#include <cmath>
#include <iomanip>
#include <sstream>

#include <ATen/ATen.h>

#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/measure/step_meter.h>
#include <tessera/training/memory/dry_run.h>
#include <tessera/training/run/training_run.h>

namespace tessera {
namespace {

void count_parameters(const TrainingRun& run, DryRunReport& cost) {
  const auto towers = run.model->state_dict();
  for (const NamedParameter& parameter : run.optimizer->parameters()) {
    std::int64_t& count = !towers.contains(parameter.name)        ? cost.objective_parameters
                          : parameter.name.starts_with("visual.") ? cost.image_parameters
                                                                  : cost.text_parameters;
    count += parameter.tensor.numel();
  }
}

MemoryPlan plan_of(MemoryModel& model, const Config& config) {
  const std::int64_t batch = config.data.loader.batch_size;
  const MicroBatch& wanted = config.training.micro_batch;
  if (!wanted.automatic) return model.plan(wanted.of(batch).value_or(batch));
  const std::optional<MemoryPlan> found = largest_that_fits(model, batch);
  return found ? *found : model.plan(1);
}

}  // namespace

DryRunReport measure_step(const Config& config, const PlanSettings& settings) {
  TrainingRun run = build_training_run(config);
  make_loader(run, config, {settings.rank, settings.ranks});  // is there a batch for every rank?
  load_initial_weights(*run.model, *run.objective, config.start);
  DryRunReport cost;
  cost.sources = run.loader->batches_per_update();
  count_parameters(run, cost);
  MemoryModel model(run, config, settings);
  cost.memory = plan_of(model, config);
  const auto batch = static_cast<double>(config.data.loader.batch_size);
  cost.forward_flops = model.forward_flops() / batch;
  cost.total_flops = model.total_flops(cost.memory.micro_batch) / batch;
  cost.samples = model.sample_count();
  cost.seconds = model.sample_seconds();
  cost.loss = model.sample_loss();
  return cost;
}

std::string to_text(const DryRunReport& cost, const Config& config) {
  std::ostringstream out;
  const std::int64_t all = cost.image_parameters + cost.text_parameters + cost.objective_parameters;
  const std::int64_t batch = config.data.loader.batch_size, accumulation = config.training.accumulation;
  out << "parameters        " << with_thousands(all) << ": image tower " << with_thousands(cost.image_parameters)
      << ", text tower " << with_thousands(cost.text_parameters) << ", objective "
      << with_thousands(cost.objective_parameters) << "\n"
      << "FLOPs per sample  " << format_flops(cost.total_flops) << " forward and backward, "
      << format_flops(cost.forward_flops)
      << " forward (matrix products, convolutions and attention; 2 per multiply-add; loss included)\n"
      << "samples a step    " << with_thousands(batch * accumulation * cost.sources * cost.memory.ranks) << ": batch "
      << batch << " x accumulation " << accumulation << (cost.sources > 1 ? concat(" x sources ", cost.sources) : "")
      << " x ranks " << cost.memory.ranks << "; the towers see " << cost.memory.micro_batch << " at a time"
      << (config.training.micro_batch.automatic ? " (micro_batch: auto)" : "") << "\n"
      << "first " << std::left << std::setw(12) << cost.samples << "samples through forward and backward in "
      << format_duration(cost.seconds) << ", loss " << cost.loss << (std::isfinite(cost.loss) ? "" : " (not finite!)")
      << "\n"
      << to_text(cost.memory, config);
  return out.str();
}

}  // namespace tessera
