
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include "src/training/trainer_ranks.h"
#include <tessera/base/error.h>
#include <tessera/base/job_error.h>
#include <tessera/base/log.h>
#include <tessera/base/random.h>
#include <tessera/base/text.h>
#include <tessera/distributed/agreement.h>
#include <tessera/io/atomic_file.h>
#include <tessera/training/clip_grad_norm.h>
#include <tessera/training/grad_cache.h>
#include <tessera/training/interrupt.h>
#include <tessera/training/trainer.h>

namespace tessera {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::vector<at::Tensor> tensors_of(const Optimizer& optimizer) {
  std::vector<at::Tensor> out;
  for (const NamedParameter& parameter : optimizer.parameters()) out.push_back(parameter.tensor);
  return out;
}

}  // namespace

std::uint64_t step_seed(std::int64_t seed, std::int64_t step, std::int64_t micro_batch, int rank) {
  const std::uint64_t first = derive_seed(static_cast<std::uint64_t>(seed), Purpose::step,
                                          {static_cast<std::uint64_t>(step), static_cast<std::uint64_t>(micro_batch)});
  return rank == 0 ? first : derive_seed(first, Purpose::step, {static_cast<std::uint64_t>(rank)});
}

Trainer::Trainer(const Config& config, const std::string& resume, const ProcessGroup& group)
    : config_(config),
      group_(group),
      heartbeat_(group, config.distributed.heartbeat),
      folder_(config.run.folder.value_or("runs/run")),
      checkpoints_(folder_ + "/checkpoints", config.checkpoint.keep_last, config.checkpoint.keep_every),
      writer_(checkpoints_, config.checkpoint),
      parts_(build_parts_together(config, group)),
      gradients_(tensors_of(*parts_.optimizer), group, config.distributed.bucket_mb),
      log_(folder_, config.training.steps, config.log.tensorboard, group.first()) {
  if (group_.first())
    log::set_file(folder_ + "/log.txt");
  else
    log::set_level(log::Level::warning);
  on_first_rank(group_, "checking the evaluation tasks",
                [&] { return check_tasks(config_.evaluation.tasks, evaluation_context()), true; });
  restore_or_initialise(resume);
  if (!group_.first()) return;
  io::write_file(folder_ + "/config.yaml", to_yaml(config_));
  print_plan();
}

Outcome Trainer::run() {
  const InterruptGuard guard;
  try {
    return train();
  } catch (const UserError&) {
    throw;
  } catch (const std::exception& error) {
    if (group_.alone()) throw;
    const std::string what = error.what();
    throw JobError(concat(heartbeat_.explain(), "; seen from rank ", group_.rank(), " after step ", state_.step, " (",
                          what.substr(0, what.find('\n')), "); go on with --resume auto"));
  }
}

Outcome Trainer::train() {
  started_ = last_save_ = Clock::now();
  seconds_before_ = state_.seconds;
  while (state_.step < config_.training.steps) {
    pending_.push_back(train_step());
    // On the CPU reading costs nothing, so a bad loss stops the run at once; on a GPU it would stall each step.
    const auto [signal, late] = agree();
    const bool save = every(config_.checkpoint.every_steps) || late;
    const bool due = every(config_.log.every_steps) || save || signal != 0;
    if ((due || parts_.device.is_cpu()) && !read_back()) return Outcome::not_finite;
    log_.tick(state_.step);
    if (save) save_checkpoint(false);
    if (every(config_.evaluation.every_steps)) evaluate();
    // An evaluation takes long enough for a signal of its own.
    stop_signal_ = signal == 0 && every(config_.evaluation.every_steps) ? agree().signal : signal;
    if (stop_signal_ != 0) {
      save_checkpoint(true);
      log_.line(concat("stopped by a signal after step ", state_.step, "; go on with --resume auto"));
      return Outcome::interrupted;
    }
  }
  save_checkpoint(true);
  evaluate();
  log_.line(concat("finished ", with_thousands(state_.step), " steps, ", with_thousands(state_.samples), " samples in ",
                   format_duration(state_.seconds), "; the model is ", last_good_, "/model.safetensors"));
  return Outcome::finished;
}

Trainer::StepResult Trainer::train_step() {
  const Clock::time_point begin = Clock::now();
  const double waited = parts_.loader->statistics().wait_seconds;
  parts_.optimizer->zero_grad();
  StepResult result;
  result.learning_rate =
      learning_rate_at(state_.step, config_.schedule, parts_.optimizer->peak_learning_rate(), config_.training.steps);
  const auto count = static_cast<double>(config_.training.accumulation);
  for (std::int64_t i = 0; i < config_.training.accumulation; ++i) {
    const Losses losses = micro_batch(i);
    const at::Tensor share = losses.total / count;
    result.loss = i == 0 ? share.detach() : result.loss + share.detach();
    for (std::size_t k = 0; k < losses.terms.size(); ++k) {
      const at::Tensor term = losses.terms[k].second.detach() / count;
      if (i == 0)
        result.terms.emplace_back(losses.terms[k].first, term);
      else
        result.terms[k].second = result.terms[k].second + term;
    }
  }
  heartbeat_.enter("the optimizer", state_.step + 1);
  std::vector<at::Tensor> gradients;
  for (const NamedParameter& parameter : parts_.optimizer->parameters())
    if (parameter.tensor.grad().defined()) gradients.push_back(parameter.tensor.grad());
  result.grad_norm = clip_grad_norm(gradients, config_.training.clip_norm);
  parts_.optimizer->step(result.learning_rate);
  parts_.objective->after_step();

  result.step = ++state_.step;
  if (parts_.average) parts_.average->update(state_.step);
  state_.data = parts_.loader->position();
  state_.seconds = seconds_trained();
  window_.seconds += seconds_since(begin);
  window_.wait_seconds += parts_.loader->statistics().wait_seconds - waited;
  return result;
}

Losses Trainer::micro_batch(std::int64_t index) {
  heartbeat_.enter("reading data", state_.step + 1);
  const Batch batch = next_batch().to(parts_.device);
  heartbeat_.enter("forward and backward pass", state_.step + 1);
  const std::uint64_t seed = step_seed(config_.seed, state_.step, index, group_.rank());
  at::manual_seed(seed);
  StepContext context;
  context.step = state_.step;
  context.generator = at::detail::createCPUGenerator(seed);
  context.group = group_;
  state_.samples += batch.size() * group_.size();
  window_.samples += batch.size() * group_.size();
  const TrainingSettings& settings = config_.training;
  const double weight = 1.0 / static_cast<double>(settings.accumulation);
  const bool reduce = index + 1 == settings.accumulation;
  if (settings.grad_cache)
    return cached_backward(parts_, gradients_, batch, {*settings.grad_cache, settings.precision, weight, reduce, seed},
                           context);
  const Losses losses = forward_loss(parts_, batch, settings.precision, context);
  gradients_.backward(losses.total * weight, reduce);
  return losses;
}

bool Trainer::every(std::int64_t steps) const {
  return steps > 0 && state_.step % steps == 0;
}

double Trainer::seconds_trained() const {
  return seconds_before_ + seconds_since(started_);
}

}  // namespace tessera
