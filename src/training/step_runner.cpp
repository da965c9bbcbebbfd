#include <chrono>

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <tessera/base/random.h>
#include <tessera/distributed/agreement.h>
#include <tessera/training/grad_cache.h>
#include <tessera/training/step_runner.h>

namespace tessera {

std::uint64_t step_seed(std::int64_t seed, std::int64_t step, std::int64_t micro_batch, int rank) {
  const std::uint64_t first = derive_seed(static_cast<std::uint64_t>(seed), Purpose::step,
                                          {static_cast<std::uint64_t>(step), static_cast<std::uint64_t>(micro_batch)});
  return rank == 0 ? first : derive_seed(first, Purpose::step, {static_cast<std::uint64_t>(rank)});
}

StepRunner::StepRunner(const Config& config, const ProcessGroup& group, Parts& parts, GradientReducer& gradients,
                       Heartbeat& heartbeat)
    : config_(config), group_(group), parts_(parts), gradients_(gradients), heartbeat_(heartbeat) {}

StepResult StepRunner::run(std::int64_t done, double scale) {
  const auto begin = std::chrono::steady_clock::now();
  const double waited = parts_.loader->statistics().wait_seconds;
  parts_.optimizer->zero_grad();
  StepResult result;
  result.step = done + 1;
  result.begin = parts_.loader->position();
  const auto count = static_cast<double>(config_.training.accumulation);
  for (std::int64_t i = 0; i < config_.training.accumulation; ++i) {
    const Losses losses = micro_batch(i, scale, result);
    const at::Tensor share = losses.total.detach() / count;
    result.loss = i == 0 ? share : result.loss + share;
    for (std::size_t k = 0; k < losses.terms.size(); ++k) {
      const at::Tensor term = losses.terms[k].second.detach() / count;
      if (i == 0)
        result.terms.emplace_back(losses.terms[k].first, term);
      else
        result.terms[k].second = result.terms[k].second + term;
    }
  }
  result.wait_seconds = parts_.loader->statistics().wait_seconds - waited;
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return result;
}

Losses StepRunner::micro_batch(std::int64_t index, double scale, StepResult& result) {
  heartbeat_.enter("reading data", result.step);
  const Batch batch = next_batch().to(parts_.device);
  heartbeat_.enter("forward and backward pass", result.step);
  const std::int64_t done = result.step - 1;
  const std::uint64_t seed = step_seed(config_.seed, done, index, group_.rank());
  at::manual_seed(seed);
  StepContext context;
  context.step = done;
  context.generator = at::detail::createCPUGenerator(seed);
  context.group = group_;
  result.samples += batch.size() * group_.size();
  result.keys.insert(result.keys.end(), batch.keys.begin(), batch.keys.end());
  const TrainingSettings& settings = config_.training;
  const double weight = scale / static_cast<double>(settings.accumulation);
  const bool reduce = index + 1 == settings.accumulation;
  if (const auto samples = settings.micro_batch.of(batch.size()))
    return cached_backward(parts_, gradients_, batch, {*samples, settings.precision, weight, reduce, seed}, context);
  const Losses losses = forward_loss(parts_, batch, settings.precision, context);
  gradients_.backward(losses.total * weight, reduce);
  return losses;
}

Batch StepRunner::next_batch() {
  Batch batch;
  if (group_.alone()) return parts_.loader->next();
  together(group_, "reading data", [&] { batch = parts_.loader->next(); });
  // A rank that skipped corrupt samples may be through with an epoch sooner; the others leave out what they have of it.
  while (true) {
    at::Tensor epochs = at::tensor({parts_.loader->epoch(), -parts_.loader->epoch()}, at::kLong);
    group_.all_reduce(epochs, Reduction::max);
    const std::int64_t last = epochs[0].item<std::int64_t>();
    if (last == -epochs[1].item<std::int64_t>()) return batch;
    together(group_, "reading data", [&] {
      while (parts_.loader->epoch() < last) batch = parts_.loader->next();
    });
  }
}

}  // namespace tessera
