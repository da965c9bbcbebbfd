#include <algorithm>
#include <chrono>

#include <ATen/ATen.h>
#include <c10/core/CachingDeviceAllocator.h>

#include <tessera/measure/machine.h>
#include "src/training/memory/loss_costs.h"
#include "src/training/memory/sample_batch.h"
#include "src/training/memory/tower_costs.h"
#include <tessera/distributed/fake_process_group.h>
#include <tessera/training/memory/memory_model.h>

namespace tessera {
namespace {

std::int64_t total_bytes(const std::map<std::string, at::Tensor>& tensors) {
  std::int64_t bytes = 0;
  for (const auto& [name, tensor] : tensors) bytes += static_cast<std::int64_t>(tensor.nbytes());
  return bytes;
}

// What measuring could change: running averages, and what an objective keeps.
std::vector<at::Tensor> changeable(const TrainingRun& run) {
  std::vector<at::Tensor> out = run.model->buffers();
  for (const std::vector<at::Tensor>& some : {run.objective->parameters(), run.objective->buffers()})
    out.insert(out.end(), some.begin(), some.end());
  return out;
}

// What an update needs for a moment beside parameters, gradients and moments, from updates of a few small tensors: so
// much per byte of all gradients, and so much per byte of the largest.
double update_bytes(const TrainingRun& run, const Config& config, std::int64_t all, std::int64_t largest) {
  constexpr std::int64_t kSide = 64, kBytes = 4 * kSide * kSide;
  const auto peak = [&](int count) {
    std::vector<NamedParameter> parameters;
    for (int i = 0; i < count; ++i) {
      at::Tensor tensor = at::zeros({kSide, kSide}, at::TensorOptions(run.device));
      tensor.mutable_grad() = at::zeros_like(tensor);
      parameters.push_back({"p" + std::to_string(i), tensor});
    }
    const auto optimizer = optimizers().make(config.optimizer, "optimizer", parameters);
    return MemoryTrace::of([&] { optimizer->step(0.0); }).peak();
  };
  const double two = peak(2), four = peak(4), per_tensor = (four - two) / 2;
  const double rest = std::max(0.0, two - 2 * per_tensor);
  return per_tensor / kBytes * static_cast<double>(all) + std::min(rest / kBytes, 4.0) * static_cast<double>(largest);
}

std::int64_t rounded(double bytes) {
  return std::llround(std::max(0.0, bytes));
}

}  // namespace

struct MemoryModel::Impl {
  Impl(TrainingRun& given_run, const Config& given_config, const PlanSettings& given_settings)
      : run(given_run),
        config(given_config),
        settings(given_settings),
        batch(config.data.loader.batch_size),
        accumulates(config.training.accumulation * run.loader->batches_per_update() > 1),
        kept(changeable(run)) {
    state.gpu = !run.device.is_cpu();
    state.ranks = settings.ranks;
    state.batch = batch;
    state.weights = total_bytes(weights_of(*run.model, *run.objective));
    state.optimizer = total_bytes(run.optimizer->state());
    if (run.ema) state.average = total_bytes(run.ema->averages());
    note_available();

    const Batch sample = first_samples(run, config, measured_samples(run.device), {settings.rank, settings.ranks});
    samples = sample.size();
    run_sample(sample);
    state.data = bytes_of(sample) / samples * batch;
    const LoaderSettings& loader = config.data.loader;
    state.ready = std::min(loader.prefetch * state.data, std::max(loader.prefetch_mb << 20, state.data)) +
                  state.data;  // the batch that is being trained with
    if (config.checkpoint.background)  // and the largest of its files, read back for its checksum
      state.checkpoint = state.weights + state.optimizer + state.average + std::max(state.weights, state.optimizer);
    if (settings.ranks > 1) state.buckets = state.gradients;
    towers.emplace(run, config.training.precision, sample);
    loss.emplace(run, config.objective, towers->features(), fake_process_group(settings.rank, settings.ranks),
                 settings.most_loss_samples);
  }

  ~Impl() { run.optimizer->zero_grad(); }

  void note_available() {
    if (settings.available) {
      state.available = state.host_available = *settings.available;
      return;
    }
    const std::int64_t free = available_memory(run.device),
                       mine = state.weights + state.optimizer + state.average + settings.allocated;
    if (state.gpu) {
      state.available = free + unused_by_allocator(run.device) + mine;
      state.host_available = available_memory(at::kCPU) / settings.ranks_here;
    } else {
      state.available = state.host_available = (free + mine * settings.started) / settings.ranks_here;
    }
  }

  // One pass over real samples: shows whether it works at all, and which parameters get a gradient. What operators keep
  // from their first call on (constants, workspaces) is there afterwards.
  void run_sample(const Batch& sample) {
    StepContext context;
      run.optimizer->zero_grad();
    const auto begin = std::chrono::steady_clock::now();
    const Losses losses = forward_loss(run, sample, config.training.precision, context);
    losses.total.backward();
    sample_loss = losses.total.item<double>();
    sample_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    for (const NamedParameter& parameter : run.optimizer->parameters()) {
      if (!parameter.tensor.grad().defined()) continue;
      const auto bytes = static_cast<std::int64_t>(parameter.tensor.grad().nbytes());
      state.gradients += bytes;
      largest_gradient = std::max(largest_gradient, bytes);
      with_gradient.push_back(parameter.tensor);
    }
    for (const at::Tensor& parameter : run.objective->parameters())
      if (parameter.grad().defined()) objective_gradients += static_cast<std::int64_t>(parameter.grad().nbytes());
  }

  const TowerCosts::Pass& pass(bool accumulate) {
    if (accumulate)
      for (at::Tensor& parameter : with_gradient)
        if (!parameter.grad().defined()) parameter.mutable_grad() = at::zeros_like(parameter);
    return towers->pass(accumulate);
  }

  const LossCosts::Cost& loss_cost() {
    if (!loss_of_batch) loss_of_batch = loss->at(batch);
    return *loss_of_batch;
  }

  MemoryPlan plan(std::int64_t micro_batch);

  TrainingRun& run;
  const Config& config;
  const PlanSettings settings;
  const std::int64_t batch;
  const bool accumulates;  // gradients of several batches make an update
  const TensorsKept kept;
  MemoryPlan state;  // what does not depend on the micro-batch
  std::int64_t objective_gradients = 0, largest_gradient = 0, samples = 0;
  std::vector<at::Tensor> with_gradient;
  double sample_loss = 0, sample_seconds = 0;
  std::optional<TowerCosts> towers;
  std::optional<LossCosts> loss;
  std::optional<LossCosts::Cost> loss_of_batch;
  std::optional<double> update;
};

MemoryPlan MemoryModel::Impl::plan(std::int64_t micro_batch) {
  MemoryPlan plan = state;
  plan.micro_batch = std::min(micro_batch, batch);
  const bool cached = plan.micro_batch < batch, accumulate = cached || accumulates;
  const TowerCosts::Pass& towers_pass = pass(accumulate);
  const double forward = towers_pass.forward.peak(plan.micro_batch), held = towers_pass.forward.held(plan.micro_batch),
               dropped = towers_pass.dropped.held(plan.micro_batch),
               backward = towers_pass.backward.peak(plan.micro_batch);
  const LossCosts::Cost& loss_cost = this->loss_cost();
  plan.activations = rounded(held);
  plan.loss = rounded(loss_cost.peak);
  plan.loss_measured = loss_cost.measured;
  if (!update) update = update_bytes(run, config, plan.gradients, largest_gradient);

  const auto lasting = static_cast<double>(plan.weights + plan.optimizer + plan.average + plan.buckets);
  const auto data = static_cast<double>(plan.data), gradients = static_cast<double>(plan.gradients);
  double peak = 0;
  const auto at = [&](const char* moment, double bytes) {
    if (lasting + bytes <= peak) return;
    peak = lasting + bytes;
    plan.moment = moment;
  };
  const double earlier = accumulate ? gradients : 0;  // gradients that are there when a pass begins
  if (!cached) {
    const double objective = accumulate ? 0 : static_cast<double>(objective_gradients);
    at("the towers' forward pass", data + earlier + forward);
    at("the loss", data + earlier + objective + held + loss_cost.peak);
    at("the towers' backward pass", data + earlier + objective + held + dropped + backward);
  } else {
    const auto features = static_cast<double>(towers->feature_bytes(batch)),
               their_gradients = static_cast<double>(towers->feature_gradient_bytes(batch)),
               of_chunk = static_cast<double>(towers->feature_gradient_bytes(plan.micro_batch));
    const double pieces = towers->forward_only().held(batch), piece = towers->forward_only().held(plan.micro_batch);
    plan.features = towers->feature_bytes(batch);
    // The first pass of a step has no gradients yet, unless batches are accumulated.
    const double before = accumulates ? gradients : 0;
    at("joining the features", data + before + pieces + features);
    at("the towers' first forward pass", data + before + pieces - piece + towers->forward_only().peak(plan.micro_batch));
    at("the loss", data + before + static_cast<double>(objective_gradients) + features + loss_cost.peak);
    at("the towers' forward pass", data + gradients + features + their_gradients + forward);
    // The stand-in's gradients of the features are slices of the whole batch's here.
    at("the towers' backward pass", data + gradients + features + their_gradients + held + backward - of_chunk);
  }
  at("the update", data + gradients + *update);
  plan.peak = rounded(peak);
  return plan;
}

MemoryModel::MemoryModel(TrainingRun& run, const Config& config, const PlanSettings& settings)
    : impl_(std::make_unique<Impl>(run, config, settings)) {}

MemoryModel::~MemoryModel() = default;

MemoryPlan MemoryModel::plan(std::int64_t micro_batch) {
  return impl_->plan(micro_batch);
}

bool MemoryModel::fits_when_tried(std::int64_t micro_batch) {
  Impl& impl = *impl_;
  if (!impl.state.gpu) return true;
  return fits_in_memory([&] {
    const bool cached = micro_batch < impl.batch;
    impl.pass(cached || impl.accumulates);
    const std::int64_t beside = impl.state.buckets + (cached ? impl.towers->feature_bytes(impl.batch) +
                                                                   impl.towers->feature_gradient_bytes(impl.batch)
                                                      : impl.loss_cost().measured ? impl.plan(micro_batch).loss
                                                                                  : 0);
    const at::Tensor room = at::empty({beside}, at::TensorOptions(impl.run.device).dtype(at::kByte));
    impl.towers->run(std::min(micro_batch, impl.batch));
  });
}

double MemoryModel::forward_flops() {
  return impl_->towers->any_pass().forward.flops(impl_->batch) + impl_->loss_cost().forward_flops;
}

double MemoryModel::total_flops(std::int64_t micro_batch) {
  const TowerCosts::Pass& pass = impl_->towers->any_pass();
  const double forward = pass.forward.flops(impl_->batch);
  const double again = micro_batch < impl_->batch ? forward : 0;
  return again + forward + pass.backward.flops(impl_->batch) + impl_->loss_cost().flops;
}

std::int64_t MemoryModel::sample_count() const {
  return impl_->samples;
}

double MemoryModel::sample_loss() const {
  return impl_->sample_loss;
}

double MemoryModel::sample_seconds() const {
  return impl_->sample_seconds;
}

}  // namespace tessera
