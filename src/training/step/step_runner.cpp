#include <algorithm>
#include <cstdlib>

#include <ATen/ATen.h>

#include "src/models/per_sample_rng.h"
#include "src/ops/weight_copies.h"
#include "src/training/step/grad_cache.h"
#include "src/training/step/step_runner.h"
#include <tessera/base/error.h>
#include <tessera/base/random.h>

namespace tessera {

GradientReducer make_reducer(const TrainingRun& run, const Config& config, const ProcessGroup& group) {
  std::vector<at::Tensor> trained;
  for (const NamedParameter& parameter : run.optimizer->parameters()) trained.push_back(parameter.tensor);
  // A search for unused parameters reads values back, which a recorded step cannot do.
  return GradientReducer(std::move(trained), group, config.distributed.bucket_mb,
                         config.distributed.compression == "bf16" ? Compression::bf16 : Compression::none,
                         /*all_used=*/config.training.cuda_graph, run.optimizer->gradient_shards());
}

std::int64_t micro_batches(const Config& config, const TrainingRun& run) {
  return config.training.accumulation * run.loader->batches_per_update();
}

std::uint64_t step_seed(std::int64_t seed, std::int64_t step, std::int64_t micro_batch, int rank) {
  const std::uint64_t first = derive_seed(static_cast<std::uint64_t>(seed), Purpose::step,
                                          {static_cast<std::uint64_t>(step), static_cast<std::uint64_t>(micro_batch)});
  return rank == 0 ? first : derive_seed(first, Purpose::step, {static_cast<std::uint64_t>(rank)});
}

at::Tensor step_row_keys(std::int64_t seed, std::int64_t step, std::int64_t micro_batch, std::int64_t batch_size,
                         const ProcessGroup& group) {
  const std::uint64_t of_step =
      derive_seed(static_cast<std::uint64_t>(seed), Purpose::step, {static_cast<std::uint64_t>(step)});
  const std::int64_t before = micro_batch * batch_size * group.size();
  return row_keys(of_step, before + group.rank(), group.size(), batch_size);
}

namespace {

StepContext trained_context(const TrainingRun& run, const Config& config, const ProcessGroup& group,
                            std::int64_t step) {
  StepContext context = step_context(run, config, group, step);
  context.counted = run.objective->looks_ahead();
  return context;
}

// Refuses runs whose steps cannot be recorded. NCCL's collectives can be recorded, because c10d hands recorded ones neither to its watchdog
// nor waits for them on the host, except in its blocking mode. Other backends communicate on the host.
void check_graph(const Config& config, const ProcessGroup& group, const TrainingRun& run) {
  if (run.objective->follows_step())
    user_error("training.cuda_graph: the objective ", config.objective.name,
               " depends on the step number, but a recorded step never changes: set it to false");
  if (config.distributed.shard == "gradients")
    user_error("training.cuda_graph: a recorded step keeps whole gradients: set distributed.shard to optimizer or none, or cuda_graph to false");
  if (test_recorder()) return;
  if (!run.device.is_cuda()) user_error("training.cuda_graph needs a GPU, and this run is on ", run.device.str());
  if (group.alone()) return;
  if (group.backend() != "nccl")
    user_error("training.cuda_graph works with several processes only over nccl, and this run has ", group.size(), " over ",
               group.backend(), ": set it to false");
  for (const char* name : {"TORCH_NCCL_BLOCKING_WAIT", "NCCL_BLOCKING_WAIT"})
    if (const char* value = std::getenv(name); value != nullptr && std::string(value) != "0")
      user_error("training.cuda_graph: with ", name, "=", value, ", collectives wait for the device, which cannot be recorded: unset it");
}

// Copies a value into a tensor that keeps its address.
void keep(at::Tensor& to, const at::Tensor& from) {
  if (to.defined())
    to.copy_(from);
  else
    to = from.clone();
}

}  // namespace

RecorderFactory& test_recorder() {
  static RecorderFactory factory;
  return factory;
}

std::unique_ptr<StepGraph> StepRunner::make_graph() {
  check_graph(config_, group_, run_);
  std::vector<at::Tensor> trained;
  for (const NamedParameter& parameter : run_.optimizer->parameters()) trained.push_back(parameter.tensor);
  const auto update = micro_batches(config_, run_) == 1 ? StepGraph::Update::one_batch : StepGraph::Update::several_batches;
  const auto work = [this](const GraphInputs& inputs) {
    const RowRngScope keyed(inputs.rows);
    const WeightCopies::Scope copied(run_.optimizer->weight_copies());
    const Losses losses = forward_loss(run_, inputs.batch, config_.training.precision, trained_context(run_, config_, group_, 0));
    gradients_.backward(losses.total * inputs.weight, BackwardPass::last);
    if (!inputs.numbers.defined()) return losses;
    AccumulatedLosses all;
    add_losses(losses, "", all);
    const StepUpdate made = update_(all, {.numbers = inputs.numbers});
    keep(updated_.numbers, made.numbers);
    keep(updated_.decision, made.decision);
    return losses;
  };
  return std::make_unique<StepGraph>(test_recorder() ? test_recorder()(run_) : make_cuda_recorder(), std::move(trained), update, work, group_);
}

bool StepRunner::records_update() const {
  return graph_ && update_ && micro_batches(config_, run_) == 1 && run_.optimizer->can_be_recorded();
}

StepRunner::StepRunner(const Config& config, const ProcessGroup& group, TrainingRun& run, GradientReducer& gradients,
                       Heartbeat& heartbeat)
    : config_(config), group_(group), run_(run), gradients_(gradients), heartbeat_(heartbeat), batches_(group, *run.loader), upload_(run.device) {
  if (config.training.cuda_graph) graph_ = make_graph();
}

AccumulatedLosses StepRunner::run(std::int64_t done, const at::Tensor& scale, const at::Tensor& numbers) {
  return run(done, scale, numbers, graph_.get());
}

AccumulatedLosses StepRunner::run_operators(std::int64_t done, const at::Tensor& scale) {
  return run(done, scale, {}, nullptr);
}

AccumulatedLosses StepRunner::run(std::int64_t done, const at::Tensor& scale, const at::Tensor& numbers, StepGraph* graph) {
  const double waited = run_.loader->statistics().wait_seconds;
  if (graph_)
    graph_->zero_gradients();  // a recording has the gradients at fixed addresses
  else
    run_.optimizer->zero_grad();
  AccumulatedLosses result;
  result.step = done + 1;
  result.begin = run_.loader->position();
  const std::int64_t count = micro_batches(config_, run_);
  const bool ahead = run_.objective->looks_ahead();
  std::vector<ReadBatch> waiting;
  for (std::int64_t i = 0; i < count; ++i) {
    if (waiting.empty()) waiting = read(ahead ? count : 1, result);
    const ReadBatch next = std::move(waiting.front());
    waiting.erase(waiting.begin());
    add_losses(compute(next, i, scale, numbers, graph, result), next.source, result);
  }
  result.updated = numbers.defined();
  result.wait_seconds = run_.loader->statistics().wait_seconds - waited;
  return result;
}

std::vector<StepRunner::ReadBatch> StepRunner::read(std::int64_t count, const AccumulatedLosses& result) {
  heartbeat_.enter("reading data", result.step);
  std::vector<ReadBatch> out;
  for (std::int64_t i = 0; i < count; ++i) {
    Batch batch = batches_.next();
    if (look_) look_(batch);
    out.push_back({std::move(batch), trained_context(run_, config_, group_, result.step - 1),
                   run_.loader->batches_per_update() > 1 ? run_.loader->source_label() : ""});
  }
  if (!run_.objective->looks_ahead()) return out;
  std::vector<const Batch*> batches;
  for (const ReadBatch& each : out) batches.push_back(&each.batch);
  run_.objective->before_step(batches, out.front().context);
  return out;
}

Losses StepRunner::compute(const ReadBatch& given, std::int64_t index, const at::Tensor& scale, const at::Tensor& numbers,
                           StepGraph* graph, AccumulatedLosses& result) {
  Batch batch = upload_(given.batch);
  heartbeat_.enter("forward and backward pass", result.step);
  const std::int64_t done = result.step - 1;
  const std::uint64_t seed = step_seed(config_.seed, done, index, group_.rank());
  at::manual_seed(seed);
  const at::Tensor rows =
      step_row_keys(config_.seed, done, index, batch.size(), group_).to(run_.device, /*non_blocking=*/true);
  const TrainingSettings& settings = config_.training;
  at::Tensor weight = at::full({}, 1.0 / static_cast<double>(settings.accumulation), rows.options().dtype(at::kFloat));
  if (scale.defined()) weight = weight * scale;
  result.samples += batch.size() * group_.size();
  result.keys.insert(result.keys.end(), batch.keys.begin(), batch.keys.end());
  WeightCopies* const copies = run_.optimizer->weight_copies();
  if (copies != nullptr) copies->refresh();
  if (graph != nullptr) {
    // A teacher may encode only some captions of an image, and a bound on the tokens of all captions says nothing about these.
    if (run_.needs.teacher())
      for (auto& [name, view] : batch.texts) view.lengths.reset();
    return graph->run({batch, rows, weight, numbers});
  }
  const bool reduce = index + 1 == micro_batches(config_, run_);
  if (const auto samples = settings.micro_batch.of(batch.size()))
    return cached_backward(run_, gradients_, batch, {*samples, settings.precision, weight, reduce, seed, rows, &result.forward},
                           given.context);
  const RowRngScope keyed(rows);
  const WeightCopies::Scope copied(copies);
  const Losses losses = [&] {
    const auto encoded = time_device(run_.device);
    const Features features = encode_batch(run_, batch, settings.precision);
    result.forward.push_back(encoded());
    return run_.objective->forward(features, given.context);
  }();
  gradients_.backward(losses.total * weight, reduce ? BackwardPass::last : BackwardPass::some);
  return losses;
}

void StepRunner::add_losses(const Losses& losses, const std::string& source, AccumulatedLosses& result) const {
  const auto count = static_cast<double>(config_.training.accumulation);
  const auto add = [&](at::Tensor& sum, const at::Tensor& value) {
    const at::Tensor share = value.detach() / count;
    sum = sum.defined() ? sum + share : share;
  };
  const auto sum_of = [](auto& named, const std::string& name) -> at::Tensor& {
    auto found = std::find_if(named.begin(), named.end(), [&](const auto& each) { return each.first == name; });
    if (found == named.end()) found = named.insert(found, {name, at::Tensor()});
    return found->second;
  };
  add(result.loss, losses.total);
  const std::string prefix = source.empty() ? "" : source + ".";
  if (!source.empty()) add(sum_of(result.terms, prefix + "loss"), losses.total);
  for (const auto& [name, value] : losses.terms) add(sum_of(result.terms, prefix + name), value);
  for (const auto& [name, value] : losses.statistics) add(sum_of(result.statistics, prefix + name), value);
  for (const auto& [name, value] : losses.used) {
    at::Tensor& any = sum_of(result.used, prefix + name);
    any = any.defined() ? any | value : value.clone();  // cloned, because a replay overwrites the tensor
  }
}

}  // namespace tessera
