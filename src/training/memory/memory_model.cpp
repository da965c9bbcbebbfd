#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <utility>

#include <ATen/ATen.h>

#include <tessera/base/avoided_flops.h>
#include <tessera/data/image/image_view_sizes.h>
#include <tessera/distributed/fake_process_group.h>
#include <tessera/measure/machine.h>
#include <tessera/measure/pass_cost.h>
#include <tessera/measure/synthetic_batch.h>
#include <tessera/training/memory/memory_plan.h>
#include <tessera/training/step/tensors_kept.h>

namespace tessera {
namespace {

constexpr double kLossSeconds = 1;  // that the next measurement of the loss may take

std::int64_t total_bytes(const std::map<std::string, at::Tensor>& tensors) {
  std::int64_t bytes = 0;
  for (const auto& [name, tensor] : tensors) bytes += static_cast<std::int64_t>(tensor.nbytes());
  return bytes;
}

std::int64_t gradient_bytes(const std::vector<at::Tensor>& parameters) {
  std::int64_t bytes = 0;
  for (const at::Tensor& parameter : parameters)
    if (parameter.grad().defined()) bytes += static_cast<std::int64_t>(parameter.grad().nbytes());
  return bytes;
}

// What measuring could change: running averages, and what an objective keeps (some bring their parameters into range in
// the forward pass).
std::vector<at::Tensor> changeable(const TrainingRun& run) {
  std::vector<at::Tensor> out = buffers_of(run), own = run.objective->parameters();
  out.insert(out.end(), own.begin(), own.end());
  return out;
}

// The first samples of the rank's data; the run's own loader stays where it is. Enough of them on a GPU that the size
// of a block of its allocator matters little.
Batch few_samples(const TrainingRun& run, const Config& config, const RankSlice& rank) {
  Config few = config;
  few.data.loader.batch_size = std::min<std::int64_t>(run.device.is_cpu() ? 3 : 32, config.data.loader.batch_size);
  few.data.loader.prefetch = 1;
  if (run.loader) return make_loader(run, few, rank)->next().to(run.device);
  return synthetic_batch(*run.model, run.needs, few.data.loader.batch_size, run.device,
                         image_view_sizes(config.model.preprocessing, config.data.loader, run.needs));
}

// What an update needs for a moment beside parameters, gradients and moments: seen in one of small tensors, of which
// there are as many, under the same names.
double update_bytes(const TrainingRun& run, const Config& config, std::int64_t gradients) {
  const std::int64_t scale = std::max<std::int64_t>(1, gradients >> 22);
  std::vector<NamedParameter> parameters = run.optimizer->parameters();
  std::vector<at::Tensor> tensors;
  for (NamedParameter& parameter : parameters) {
    std::vector<std::int64_t> sizes = parameter.tensor.sizes().vec();
    if (!sizes.empty()) sizes[0] = (sizes[0] + scale - 1) / scale;
    at::Tensor small = at::zeros(sizes, parameter.tensor.options());
    if (parameter.tensor.grad().defined()) small.mutable_grad() = at::zeros_like(small);
    parameter.tensor = tensors.emplace_back(std::move(small));
  }
  const auto optimizer = optimizers().make(config.optimizer, "optimizer", parameters);
  const double peak = MemoryTrace::of([&] { optimizer->step(0.0); }).peak();
  return peak / static_cast<double>(std::max<std::int64_t>(1, gradient_bytes(tensors))) *
         static_cast<double>(gradients);
}

// A run's step, measured in pieces.
struct StepModel {
  TrainingRun& run;
  const Config& config;
  const PlanSettings settings;
  const std::int64_t batch = config.data.loader.batch_size;
  // Gradients of several batches make an update.
  const bool accumulates = config.training.accumulation * (run.loader ? run.loader->batches_per_update() : 1) > 1;
  const TensorsKept kept{changeable(run)};
  const Batch sample = few_samples(run, config, {settings.rank, settings.ranks});
  Features features = {};                                 // of the sample, detached
  double forward_flops = 0;                               // of the towers, per sample
  PassCost loss{2};                                       // what the objective needs beyond the features it is given
  std::array<std::optional<PassCost>, 2> of_towers = {};  // the batch all at once, in parts
  double update = 0;                                      // bytes beside parameters, gradients and moments
  MemoryPlan base = {};                                   // what does not depend on the micro-batch

  StepModel(TrainingRun& given_run, const Config& given_config, const PlanSettings& given_settings)
      : run(given_run), config(given_config), settings(given_settings) {
    pass_sample();
    measure_loss();
    note_what_lasts();
    note_what_is_available();
  }
  ~StepModel() { run.optimizer->zero_grad(); }

  MemoryPlan plan(std::int64_t micro_batch) {
    MemoryPlan plan = base;
    plan.micro_batch = std::min(micro_batch, batch);
    const bool in_parts = plan.micro_batch < batch;
    const PassCost& pass = towers(in_parts);
    const MemoryTrace forward = pass.forward.trace(plan.micro_batch), backward = pass.backward.trace(plan.micro_batch),
                      of_loss = loss.trace(batch);
    const double again = in_parts ? forward_flops * static_cast<double>(batch) : 0;
    plan.forward_flops = forward_flops * static_cast<double>(batch) + loss.forward.flops(batch);
    plan.total_flops = again + pass.flops(batch) + loss.flops(batch);
    plan.activations = std::llround(std::max(0.0, forward.held()));
    if (in_parts) plan.features = bytes_of(features) / sample.size() * batch;

    // The features' gradients are what the loss holds in the end.
    const auto gradients = static_cast<double>(plan.gradients), all_features = static_cast<double>(plan.features);
    const double in_loss = accumulates ? gradients : static_cast<double>(gradient_bytes(run.objective->parameters())),
                 in_towers = in_parts      ? gradients + of_loss.held()
                             : accumulates ? gradients
                                           : 0,
                 in_backward = in_parts ? in_towers : in_loss + of_loss.held();
    const std::array<std::pair<const char*, double>, 4> phases = {
        {{"the towers' forward pass", all_features + in_towers + forward.peak()},
         {"the loss", all_features + in_loss + (in_parts ? 0 : forward.held()) + of_loss.peak()},
         {"the towers' backward pass", all_features + in_backward + forward.held() + backward.peak()},
         {"the update", gradients + update}}};
    const auto highest = std::max_element(phases.begin(), phases.end(),
                                          [](const auto& a, const auto& b) { return a.second < b.second; });
    plan.peak_phase = highest->first;
    plan.peak = plan.weights + plan.optimizer + plan.average + plan.buckets + plan.data + std::llround(highest->second);
    return plan;
  }

  // Whether a pass of so many samples really finds room: tried on a GPU, where running out of memory is an error that
  // can be caught; true on the CPU.
  bool fits_when_tried(const MemoryPlan& plan) {
    if (!plan.gpu) return true;
    const bool in_parts = plan.micro_batch < batch;
    const std::int64_t of_loss = in_parts ? plan.features : plan.loss_measured ? plan.loss : 0;
    return fits_in_memory([&] {
      const at::Tensor beside =
          at::empty({plan.buckets + plan.features + of_loss}, at::TensorOptions(run.device).dtype(at::kByte));
      PassCost tried(1);
      pass_towers(tried, plan.micro_batch, in_parts);
    });
  }

  StepContext context(const ProcessGroup& group) const {
    StepContext out;
    out.total_steps = config.training.steps;
    out.group = group;
    if (run.teacher) out.teacher = run.teacher->objective.get();
    return out;
  }

  // Shows whether it works at all, and which parameters get a gradient. What operators keep from their first call on
  // (constants, workspaces) is there afterwards.
  void pass_sample() {
    run.optimizer->zero_grad();
    base.samples = sample.size();
    base.seconds = seconds_of(run.device, [&] {
      const FlopCounter counter;
      const std::int64_t avoided = AvoidedFlops::total();
      features = encode_batch(run, sample, config.training.precision);
      forward_flops = base.tower_flops = counter.flops() / static_cast<double>(sample.size());
      base.avoided_flops = static_cast<double>(AvoidedFlops::total() - avoided) / static_cast<double>(sample.size());
      const Losses losses = run.objective->forward(features, context({}));
      losses.total.backward();
      base.sample_loss = losses.total.item<double>();
    });
    features = map_tensors(features, [](const at::Tensor& tensor) { return tensor.detach(); });
  }

  // Of at least three sizes, where the batch has them: it takes as many to tell a parabola from a line.
  void measure_loss() {
    const StepContext on_rank = context(fake_process_group(settings.rank, settings.ranks));
    const double room = static_cast<double>(available_memory(run.device)) / 4;
    std::int64_t samples = std::min<std::int64_t>(batch, 2);
    for (int sizes = 1;; ++sizes, samples = std::min(batch, 2 * samples)) {
      const Features leaves = repeated_leaves(features, samples);
      const double seconds = seconds_of(run.device, [&] {
        Losses losses;
        loss.forward.measure(samples, [&] { losses = run.objective->forward(leaves, on_rank); });
        loss.backward.measure(samples, [&] { std::exchange(losses, {}).total.backward(); });
      });
      base.loss_measured = samples == batch;
      const bool enough = settings.most_loss_samples > 0 && 2 * samples > settings.most_loss_samples,
                 large = 4 * seconds > kLossSeconds || 4 * loss.trace(samples).peak() > room;
      if (base.loss_measured || (sizes >= 3 && (enough || large))) break;
    }
    base.loss = std::llround(loss.trace(batch).peak());
  }

  void note_what_lasts() {
    base.gpu = !run.device.is_cpu();
    base.ranks = settings.ranks;
    base.batch = batch;
    base.weights = total_bytes(weights_of(*run.model, *run.objective));
    base.optimizer = total_bytes(run.optimizer->state());
    if (run.ema) base.average += total_bytes(run.ema->averages());
    if (run.teacher) base.average += total_bytes(run.teacher->ema.averages());
    for (const NamedParameter& parameter : run.optimizer->parameters())
      base.gradients += gradient_bytes({parameter.tensor});
    if (settings.ranks > 1) base.buckets = base.gradients;
    update = update_bytes(run, config, base.gradients);
    base.data = bytes_of(sample) / sample.size() * batch;
    const LoaderSettings& loader = config.data.loader;
    base.ready = std::min(loader.prefetch * base.data, std::max(loader.prefetch_mb << 20, base.data)) +
                 base.data;            // the batch that is being trained with
    if (config.checkpoint.background)  // and the largest of its files, read back for its checksum
      base.checkpoint = base.weights + base.optimizer + base.average + std::max(base.weights, base.optimizer);
  }

  void note_what_is_available() {
    const std::int64_t free = available_memory(run.device),
                       mine = base.weights + base.optimizer + base.average + settings.allocated;
    base.available = base.gpu ? free + unused_by_allocator(run.device) + mine
                              : (free + mine * settings.started) / settings.ranks_here;
    base.host_available = base.gpu ? available_memory(at::kCPU) / settings.ranks_here : base.available;
    if (settings.available) base.available = base.host_available = *settings.available;
  }

  // In parts, the teacher has seen the batch before.
  void pass_towers(PassCost& cost, std::int64_t samples, bool in_parts) {
    measure_towers(cost, repeated(sample, samples), [&](const Batch& few) {
      const std::string& precision = config.training.precision;
      return in_parts ? encode_student(run, few, precision) : encode_batch(run, few, precision);
    });
  }

  // The gradients of earlier passes are there, unless a step has one pass alone.
  const PassCost& towers(bool in_parts) {
    std::optional<PassCost>& cost = of_towers.at(in_parts ? 1 : 0);
    if (cost) return *cost;
    cost.emplace(1);
    for (const std::int64_t samples : run.device.is_cpu() ? std::array{2, 3} : std::array{21, 32}) {
      if (!in_parts && !accumulates) run.optimizer->zero_grad();
      pass_towers(*cost, samples, in_parts);
    }
    return *cost;
  }
};

}  // namespace

MemoryPlan plan_memory(TrainingRun& run, const Config& config, const PlanSettings& settings) {
  StepModel model(run, config, settings);
  const MicroBatch& wanted = config.training.micro_batch;
  if (!wanted.automatic) return model.plan(wanted.of(model.batch).value_or(model.batch));
  for (std::uint64_t parts = 1;;
       parts += std::has_single_bit(parts) ? std::max<std::uint64_t>(1, parts / 2) : parts / 3) {
    const auto count = static_cast<std::int64_t>(parts);  // 1, 2, 3, 4, 6, 8, 12, 16, ...
    MemoryPlan plan = model.plan((model.batch + count - 1) / count);
    plan.refused = plan.fits() && !model.fits_when_tried(plan);
    if (plan.fits() || plan.micro_batch == 1) return plan;
  }
}

}  // namespace tessera
