#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include <ATen/ATen.h>

#include "src/base/avoided_flops.h"
#include "src/data/image/image_views.h"
#include "src/distributed/fake_process_group.h"
#include "src/distributed/gradient_reducer.h"
#include "src/distributed/shard_reducer.h"
#include "src/measure/machine.h"
#include "src/measure/pass_cost.h"
#include "src/measure/synthetic_batch.h"
#include "src/objectives/grad_cache.h"
#include "src/training/memory/memory_plan.h"
#include "src/training/step/tensors_kept.h"

namespace tessera {
namespace {

constexpr double kLossSeconds = 1;    // after three measurements of the loss, another measurement may take at most this many seconds
constexpr double kChunkSeconds = 10;  // time limit, in seconds, for measuring the loss with more samples than one chunk

std::int64_t total_bytes(const std::map<std::string, at::Tensor>& tensors) {
  std::int64_t bytes = 0;
  for (const auto& [name, tensor] : tensors) bytes += static_cast<std::int64_t>(tensor.nbytes());
  return bytes;
}

std::int64_t gradient_bytes(const std::vector<NamedParameter>& parameters) {
  std::int64_t bytes = 0;
  for (const NamedParameter& parameter : parameters)
    if (parameter.tensor.grad().defined()) bytes += static_cast<std::int64_t>(parameter.tensor.nbytes());
  return bytes;
}

// Returns the tensors that measuring could change: running averages, and the objective's parameters, because some objectives clamp
// or normalize their parameters in the forward pass.
std::vector<at::Tensor> changeable(const TrainingRun& run) {
  std::vector<at::Tensor> out = collect_buffers(run), own = run.objective->parameters();
  out.insert(out.end(), own.begin(), own.end());
  return out;
}

// Returns the temporary memory that an update needs in addition to parameters, gradients and moments. It is measured on smaller
// tensors with the same names and then scaled up.
std::int64_t update_bytes(const TrainingRun& run, const Config& config) {
  std::vector<NamedParameter> parameters = run.optimizer->parameters();
  const std::int64_t gradients = gradient_bytes(parameters), scale = std::max<std::int64_t>(1, gradients >> 22);
  for (NamedParameter& parameter : parameters) {
    std::vector<std::int64_t> sizes = parameter.tensor.sizes().vec();
    if (!sizes.empty()) sizes[0] = (sizes[0] + scale - 1) / scale;
    const bool trained = parameter.tensor.grad().defined();
    parameter.tensor = at::zeros(sizes, parameter.tensor.options());
    if (trained) parameter.tensor.mutable_grad() = at::zeros_like(parameter.tensor);
  }
  const auto optimizer = make_optimizer(config, parameters);
  optimizer->state();  // allocates the moments, which do not count here
  const double peak = MemoryTrace::of([&] { optimizer->step(0.0); }).peak();
  return std::llround(peak / static_cast<double>(std::max<std::int64_t>(1, gradient_bytes(parameters))) *
                      static_cast<double>(gradients));
}

// Returns how many real tokens, texts and boxes each sample has, [B, masks]. The first column, 0, is for batches without masks.
at::Tensor real_numbers(const Batch& batch) {
  std::vector<at::Tensor> real{at::zeros({batch.size()}, at::kDouble)};
  for (const auto* views : {&batch.images, &batch.texts})
    for (const auto& [name, view] : *views)
      for (const at::Tensor& mask : {view.mask, view.boxes.mask})
        if (mask.defined()) real.push_back(mask.flatten(1).sum(1).to(at::kDouble));
  return at::stack(real, 1);
}

// Chooses samples of the batch that together resemble it: in each view, they have as many real tokens, texts and boxes as the batch has on
// average, up to 1 %. Chooses at least `count` and at most 4 * count, because few samples cannot have 1.7 boxes. Each sample is as long as
// the batch's longest one, as in a step of the whole batch.
Batch typical_samples(const Batch& batch, std::int64_t count) {
  constexpr double kError = 0.01;
  const at::Tensor numbers = real_numbers(batch), mean = numbers.mean(0, /*keepdim=*/true);
  const at::Tensor deviations = (numbers - mean) / mean.clamp_min(kError);
  at::Tensor sum = at::zeros({1, deviations.size(1)}, at::kDouble), taken = at::zeros({batch.size()}, at::kBool);
  std::vector<std::int64_t> chosen;
  const auto resembles = [&] { return sum.abs().max().item<double>() <= kError * static_cast<double>(chosen.size()); };
  const std::int64_t most = std::min(4 * count, batch.size());
  while (std::ssize(chosen) < most && (std::ssize(chosen) < count || !resembles())) {
    const at::Tensor errors = (sum + deviations).square().sum(1).masked_fill(taken, std::numeric_limits<double>::infinity());
    chosen.push_back(errors.argmin().item<std::int64_t>());
    taken[chosen.back()] = true;
    sum += deviations[chosen.back()];
  }
  Batch out = map_tensors(batch, [rows = at::tensor(chosen)](const at::Tensor& tensor) { return tensor.index_select(0, rows); });
  out.keys.clear();
  for (const std::int64_t sample : chosen) out.keys.push_back(batch.keys[static_cast<std::size_t>(sample)]);
  return out;
}

// Returns the micro-batch of the batch that has the most real tokens, texts and boxes, and so needs the most memory.
Batch largest_part(const Batch& batch, std::int64_t samples) {
  const at::Tensor numbers = real_numbers(batch).sum(1);
  const ChunkedRows parts{batch.size(), samples};
  const auto size = [&](std::int64_t part) { return numbers.narrow(0, parts.first(part), parts.size(part)).sum().item<double>(); };
  std::int64_t largest = 0;
  for (std::int64_t part = 1; part < parts.count(); ++part)
    if (size(part) > size(largest)) largest = part;
  return slice(batch, parts.first(largest), parts.size(largest));
}

// Predicts the duration of work with more samples, by a power law through the last two measurements.
class GrowthOfTime {
 public:
  void add(std::int64_t samples, double seconds) {
    before_ = std::exchange(last_, {static_cast<double>(samples), std::max(seconds, 1e-6)});
  }
  double of(std::int64_t samples) const {
    const double power =
        before_.samples > 0 ? std::log(last_.seconds / before_.seconds) / std::log(last_.samples / before_.samples) : 2;
    return last_.seconds * std::pow(static_cast<double>(samples) / last_.samples, std::clamp(power, 1.0, 2.0));
  }

 private:
  struct Measured {
    double samples = 0, seconds = 0;
  };
  Measured before_, last_;
};

// Models the cost of a step, based on measurements of its parts.
class StepModel {
 public:
  StepModel(TrainingRun& run, const Config& config, const PlanSettings& settings)
      : run_(run), config_(config), settings_(settings), kept_(changeable(run)), read_(read_samples()), sample_(few_of(read_)) {
    base_.gpu = !run.device.is_cpu();
    base_.ranks = settings.ranks;
    base_.batch = config.data.loader.batch_size;
    pass_sample();
    measure_loss();
    note_what_lasts();
    if (settings.ranks == 1) return;
    std::vector<at::Tensor> trained;
    for (const NamedParameter& parameter : run.optimizer->parameters()) trained.push_back(parameter.tensor);
    moved_.emplace(trained, [](std::size_t, at::Tensor& gradient) { gradient.reset(); });
  }
  ~StepModel() { run_.optimizer->zero_grad(); }

  MemoryPlan plan(std::int64_t micro_batch) {
    MemoryPlan plan = base_;
    plan.micro_batch = std::min(micro_batch, plan.batch);
    const bool in_parts = plan.micro_batch < plan.batch;
    const PassCost& pass = towers(plan.micro_batch);
    const MemoryTrace forward = pass.forward.trace(plan.micro_batch), loss = loss_.trace(plan.batch);
    const double of_towers = forward_flops_ * static_cast<double>(plan.batch);
    plan.forward_flops = of_towers + loss_.forward.flops(plan.batch);
    plan.total_flops = (in_parts ? of_towers : 0) + pass.flops(plan.batch) + loss_.flops(plan.batch);
    plan.activations = std::llround(std::max(0.0, forward.held()));
    if (in_parts) plan.features = bytes_of(features_) / sample_.size() * plan.batch;

    const auto given = static_cast<double>(plan.data + plan.features), gradients = static_cast<double>(plan.gradients);
    double level = given + (accumulates() ? gradients : 0), peak = 0;
    const auto goes_through = [&](const char* phase, const MemoryTrace& trace) {
      if (level + trace.peak() > peak) {
        peak = level + trace.peak();
        plan.peak_phase = phase;
      }
      level += trace.held();
    };
    // With micro-batches, the loss is computed before the towers' second passes. In all but the first of these passes, gradients
    // already exist.
    if (in_parts) {
      goes_through("the loss", loss);
      level = given + gradients + loss.held();
    }
    goes_through("the towers' forward pass", forward);
    if (!in_parts) goes_through("the loss", loss);
    goes_through("the towers' backward pass", pass.backward.trace(plan.micro_batch));
    level = gradients;  // the batch's tensors are already freed
    goes_through("the update", MemoryTrace({static_cast<double>(update_)}));
    plan.peak = plan.weights + plan.optimizer + plan.average + plan.buckets + std::llround(peak);
    return plan;
  }

  // Returns true if a pass of the plan's micro-batch really fits into memory. On a GPU it tries such a pass, because running out of memory
  // can be caught there. On the CPU it always returns true.
  bool fits_when_tried(const MemoryPlan& plan) {
    if (!plan.gpu) return true;
    const bool in_parts = plan.micro_batch < plan.batch;
    const std::int64_t of_loss = in_parts ? plan.features : plan.loss_measured ? plan.loss : 0;
    return fits_in_memory([&] {
      const at::Tensor beside =
          at::empty({plan.buckets + plan.features + of_loss}, at::TensorOptions(run_.device).dtype(at::kByte));
      PassCost tried(1);
      pass_towers(tried, plan.micro_batch, sample_of(plan.micro_batch), in_parts);
    });
  }

 private:
  // Returns true if an update accumulates the gradients of several batches.
  bool accumulates() const {
    return config_.training.accumulation * (run_.loader ? run_.loader->batches_per_update() : 1) > 1;
  }

  // The least number of samples to measure. On a GPU there are so many that the allocator's block size hardly distorts the measurement.
  std::int64_t few() const { return std::min<std::int64_t>(run_.device.is_cpu() ? 2 : 16, config_.data.loader.batch_size); }

  Batch few_of(const Batch& batch) const { return typical_samples(batch, few()).to(run_.device); }

  // Returns samples of the rank's data, without advancing the run's own loader.
  Batch read_samples() const {
    constexpr std::int64_t kRead = 64;
    const std::int64_t batch = config_.data.loader.batch_size;
    Config few_read = config_;
    few_read.data.loader.batch_size = std::min(kRead, batch);
    few_read.data.loader.prefetch = 1;
    few_read.data.loader.resolution.clear();  // measures at the full resolution, because it has the most patches
    if (run_.loader) return make_loader(run_, few_read, {settings_.rank, settings_.ranks})->next();
    return synthetic_batch(*run_.model, run_.needs, few(), at::kCPU,
                           image_view_sizes(config_.model.preprocessing, config_.data.loader, run_.needs),
                           texts_per_image(config_.data.loader));
  }

  // Runs a first pass, which shows whether a pass works at all and which parameters get a gradient. It also allocates the memory that
  // operators keep after their first call, such as constants and workspaces.
  void pass_sample() {
    run_.optimizer->zero_grad();
    base_.samples = sample_.size();
    for (const auto& [name, text] : sample_.texts) base_.text_tokens = std::max(base_.text_tokens, text.ids.size(-1));
    base_.seconds = measure_seconds(run_.device, [&] {
      const FlopCounter counter;
      const std::int64_t avoided = AvoidedFlops::total();
      features_ = encode_batch(run_, sample_, config_.training.precision);
      forward_flops_ = base_.tower_flops = counter.flops() / static_cast<double>(sample_.size());
      base_.avoided_flops = static_cast<double>(AvoidedFlops::total() - avoided) / static_cast<double>(sample_.size());
      const Losses losses = run_.objective->forward(features_, step_context(run_, config_, {}, 0));
      losses.total.backward();
      base_.sample_loss = losses.total.item<double>();
    });
    features_ = map_tensors(features_, [](const at::Tensor& tensor) { return tensor.detach(); });
  }

  // Measures the cost of the loss for this many samples. Returns the duration in seconds.
  double measure_loss(std::int64_t samples) {
    const StepContext on_rank = step_context(run_, config_, fake_process_group(settings_.rank, settings_.ranks), 0);
    const Features leaves = repeated_leaves(features_, samples);
    base_.loss_measured = samples == base_.batch;
    return measure_seconds(run_.device, [&] {
      Losses losses;
      loss_.forward.measure(samples, [&] { losses = run_.objective->forward(leaves, on_rank); });
      loss_.backward.measure(samples, [&] { std::exchange(losses, {}).total.backward(); });
    });
  }

  // Measures at least three batch sizes where possible: fitting a quadratic needs three points.
  void measure_loss() {
    const double room = static_cast<double>(available_memory(run_.device)) / 4;
    std::int64_t samples = std::min<std::int64_t>(base_.batch, 2);
    GrowthOfTime time;
    for (int sizes = 1;; ++sizes, samples = std::min(base_.batch, 2 * samples)) {
      const double seconds = measure_loss(samples);
      time.add(samples, seconds);
      const bool large = 4 * seconds > kLossSeconds || 4 * loss_.trace(samples).peak() > room,
                 enough = settings_.most_loss_samples > 0 ? 2 * samples > settings_.most_loss_samples : large;
      if (base_.loss_measured || (sizes >= 3 && enough)) break;
    }
    // As the batch grows, the cost of a chunked loss at first grows as quickly as that of a loss without chunks. Once the batch is larger
    // than one chunk, the cost grows far more slowly. So measurements with at most one chunk cannot be extrapolated to the batch.
    const std::int64_t chunk = chunk_in_effect(), two_chunks = std::min(base_.batch, 2 * chunk + 1);
    if (!base_.loss_measured && chunk > 0 && samples / 4 <= chunk && time.of(two_chunks) <= kChunkSeconds &&
        loss_.trace(two_chunks).peak() <= room) {
      loss_ = PassCost(2);
      for (const std::int64_t size : {chunk + 1, chunk + chunk / 2 + 1, two_chunks})
        if (size <= two_chunks) measure_loss(size);
    }
    base_.loss = std::llround(loss_.trace(base_.batch).peak());
  }

  // Returns the largest `chunk` setting that is smaller than the batch, or 0 if there is none.
  std::int64_t chunk_in_effect() const {
    std::int64_t largest = 0;
    for (const ChunkSetting& each : chunk_settings(config_))
      largest = std::max(largest, each.chunk.of(base_.batch).value_or(0));
    return largest;
  }

  void note_what_lasts() {
    base_.weights = total_bytes(collect_weights(*run_.model, *run_.objective));
    base_.optimizer = total_bytes(run_.optimizer->state());
    if (run_.ema) base_.average += total_bytes(run_.ema->averages());
    if (run_.teacher) base_.average += total_bytes(run_.teacher->ema.averages());
    base_.gradients = gradient_bytes(run_.optimizer->parameters());
    if (settings_.ranks > 1) base_.buckets = std::exchange(base_.gradients, 0);
    if (const auto& shards = run_.optimizer->gradient_shards()) base_.buckets = ShardReducer::most_bytes(*shards->of);
    update_ = update_bytes(run_, config_);
    base_.data = bytes_of(sample_) / sample_.size() * base_.batch;
    const LoaderSettings& loader = config_.data.loader;
    base_.ready = std::min(loader.prefetch * base_.data, std::max(loader.prefetch_mb << 20, base_.data)) +
                  base_.data;  // the batch of the current step
    if (config_.checkpoint.background) base_.checkpoint = base_.weights + base_.optimizer + base_.average;

    if (run_.teacher && run_.teacher->frozen()) base_.weights += total_bytes(run_.teacher->model->state_dict());  // not in checkpoints

    const std::int64_t free = available_memory(run_.device),
                       mine = base_.weights + base_.optimizer + base_.average + settings_.allocated;
    base_.available = base_.gpu ? free + unused_by_allocator(run_.device) + mine
                                : (free + mine * settings_.started) / settings_.ranks_here;
    base_.host_available = base_.gpu ? available_memory(at::kCPU) / settings_.ranks_here : base_.available;
    if (settings_.available) base_.available = base_.host_available = *settings_.available;
  }

  // Returns the samples for measuring the towers: those of the whole batch or, because a step's peak is that of its largest micro-batch,
  // samples like those of the largest one. In a smaller micro-batch, the samples are the same.
  const Batch& sample_of(std::int64_t micro_batch) {
    if (micro_batch >= base_.batch) return sample_;
    if (!part_) part_ = few_of(largest_part(read_, micro_batch));
    return *part_;
  }

  // Measures a pass of the towers. With micro-batches (`in_parts`), the teacher has already processed the batch, so only the
  // student is measured.
  void pass_towers(PassCost& cost, std::int64_t samples, const Batch& sample, bool in_parts) {
    measure_towers(cost, repeated(sample, samples), [&](const Batch& few) {
      return (in_parts ? encode_student : encode_batch)(run_, few, config_.training.precision);
    });
  }

  // Returns the cost of the towers' passes. If a step has several passes, a pass is measured while the gradients of earlier passes exist.
  // If a step has only one pass, the gradients of earlier measurements are freed before the pass is measured.
  const PassCost& towers(std::int64_t micro_batch) {
    const bool in_parts = micro_batch < base_.batch;
    const Batch& sample = sample_of(micro_batch);
    const auto [found, fresh] = towers_.try_emplace(in_parts, 1);
    if (fresh)
      for (const std::int64_t samples : {sample.size(), 2 * sample.size()}) {
        if (!in_parts && !accumulates()) run_.optimizer->zero_grad();
        pass_towers(found->second, samples, sample, in_parts);
      }
    return found->second;
  }

  TrainingRun& run_;
  const Config& config_;
  const PlanSettings settings_;
  const TensorsKept kept_;
  std::optional<GradientWatch> moved_;  // with several ranks: frees gradients as soon as they would be in a bucket
  const Batch read_, sample_;        // samples of the data, and those of them that are measured
  std::optional<Batch> part_;        // as sample_, but for micro-batches
  Features features_;                // features of sample_, detached
  double forward_flops_ = 0;         // FLOPs of the towers' forward pass, per sample
  PassCost loss_{2};                 // cost of the objective, without its input features
  std::map<bool, PassCost> towers_;  // key: true if the batch is processed in micro-batches
  std::int64_t update_ = 0;          // bytes that an update needs in addition to parameters, gradients and moments
  MemoryPlan base_;                  // the parts of a plan that do not depend on the micro-batch
};

}  // namespace

MemoryPlan plan_memory(TrainingRun& run, const Config& config, const PlanSettings& settings) {
  StepModel model(run, config, settings);
  const std::int64_t batch = config.data.loader.batch_size;
  const config::SamplesAtATime& wanted = config.training.micro_batch;
  if (!wanted.automatic) return model.plan(wanted.of(batch).value_or(batch));
  for (std::uint64_t parts = 1;;
       parts += std::has_single_bit(parts) ? std::max<std::uint64_t>(1, parts / 2) : parts / 3) {
    const auto count = static_cast<std::int64_t>(parts);  // takes the values 1, 2, 3, 4, 6, 8, 12, 16, ...
    MemoryPlan plan = model.plan((batch + count - 1) / count);
    plan.refused = plan.fits() && !model.fits_when_tried(plan);
    if (plan.fits() || plan.micro_batch == 1) return plan;
  }
}

}  // namespace tessera
