
#include <ATen/ATen.h>

#include <tessera/measure/machine.h>
#include "src/training/trainer_ranks.h"
#include <tessera/base/error.h>
#include <tessera/base/job_error.h>
#include <tessera/base/log.h>
#include <tessera/base/text.h>
#include <tessera/distributed/agreement.h>
#include <tessera/io/atomic_file.h>
#include <tessera/training/interrupt.h>
#include <tessera/training/trainer.h>

namespace tessera {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::vector<at::Tensor> gradients_of(const Optimizer& optimizer) {
  std::vector<at::Tensor> out;
  for (const NamedParameter& parameter : optimizer.parameters())
    if (parameter.tensor.grad().defined()) out.push_back(parameter.tensor.grad());
  return out;
}

std::vector<at::Tensor> buffers_of(const TrainingRun& run) {
  std::vector<at::Tensor> out = run.model->buffers();
  for (const at::Tensor& buffer : run.objective->buffers()) out.push_back(buffer);
  return out;
}

}  // namespace

Trainer::Trainer(const Config& config, const std::string& resume, const ProcessGroup& group)
    : config_(config),
      group_(group),
      heartbeat_(group, config.distributed.heartbeat),
      folder_(config.run.folder.value_or("runs/run")),
      checkpoints_(folder_ + "/checkpoints", config.checkpoint.keep_last, config.checkpoint.keep_every),
      writer_(checkpoints_, config.checkpoint),
      run_(build_on_all_ranks(config, group)),
      gradients_(make_reducer(run_, config, group)),
      runner_(config_, group_, run_, gradients_, heartbeat_),
      scale_(config.training.precision == "fp16"),
      guard_(config.training.non_finite, config.training.precision == "fp16", buffers_of(run_), scale_),
      log_(folder_, config.training.steps, config.log, group.first()),
      mfu_(config, run_.device),
      grad_norm_groups_(grad_norm_groups(*run_.optimizer)),
      profiler_(config.log, folder_, group, run_.device),
      input_bound_(config.data.loader.threads, std::thread::hardware_concurrency()) {
  if (group_.first())
    log::set_file(folder_ + "/log.txt");
  else
    log::set_level(log::Level::warning);
  run_on_rank0(group_, "checking the evaluation tasks",
                [&] { return check_tasks(config_.evaluation.tasks, evaluation_context()), true; });
  restore_or_initialize(resume);
  settle_micro_batch();
  if (!group_.first()) return;
  io::write_file(folder_ + "/config.yaml", to_yaml(config_));
  print_plan();
}

Outcome Trainer::run() {
  const InterruptGuard guard;
  try {
    return show(train());
  } catch (const UserError& error) {
    show("failed", false, error.what());
    throw;
  } catch (const std::exception& error) {
    const std::string text = error.what(), what = text.substr(0, text.find('\n'));
    show("failed", false, what);
    if (out_of_memory(error)) explain_out_of_memory();
    if (group_.alone()) throw;
    throw JobError(concat(heartbeat_.explain(), "; seen from rank ", group_.rank(), " after step ", state_.step, " (",
                          what, "); go on with --resume auto"));
  }
}

Outcome Trainer::train() {
  started_ = last_save_ = Clock::now();
  seconds_before_ = state_.seconds;
  while (state_.step < config_.training.steps) {
    pending_.push_back(observed_step());
    // On the CPU reading costs nothing, so a bad loss stops the run at once; on a GPU it would stall each step, unless
    // the guard has waited for the step already.
    const auto [signal, late] = agree();
    const bool save = every(config_.checkpoint.every_steps) || late;
    const bool due = every(config_.log.every_steps) || save || signal != 0;
    if ((due || run_.device.is_cpu() || !guard_.found_inf().defined()) && !read_back()) return Outcome::not_finite;
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

Trainer::PendingUpdate Trainer::train_step() {
  const Clock::time_point begin = Clock::now();
  PendingUpdate step;
  step.before = state_;
  step.updates_before = run_.optimizer->steps_taken();
  step.learning_rate =
      learning_rate_at(state_.step, config_.schedule, run_.optimizer->peak_learning_rate(), config_.training.steps);
  guard_.begin();
  step.scale = scale_.value();
  step.result = runner_.run(state_.step, step.scale);
  heartbeat_.enter("the optimizer", step.result.step);
  scale_.unscale(gradients_of(*run_.optimizer));
  step.norms = clip_gradients(*run_.optimizer, grad_norm_groups_, config_.training.clip_norm);
  step.numbers = mean_over_ranks(step);
  step.decision = guard_.check(step.numbers);
  state_.step = step.result.step;
  if (step.decision == NonFiniteGuard::StepDecision::update) update(step.learning_rate);

  state_.samples += step.result.samples;
  state_.data = run_.loader->position();
  state_.loss_scale = scale_.state();
  state_.seconds = seconds_trained();
  window_.samples += step.result.samples;
  window_.wait_seconds += step.result.wait_seconds;
  window_.seconds += seconds_since(begin);
  return step;
}

void Trainer::update(double learning_rate) {
  run_.optimizer->step(learning_rate, guard_.found_inf());
  const StepContext done = step_context(run_, config_, group_, state_.step - 1);
  run_.objective->after_step(done);
  // On a GPU the steps that are under way may still move the averages towards weights that stand still.
  const bool stands_still = run_.device.is_cpu() && guard_.found_inf().defined() && guard_.found_inf().item<float>() > 0;
  if (stands_still) return;
  if (run_.ema) run_.ema->update(state_.step);
  if (run_.teacher) run_.teacher->ema.update_with(run_.objective->teacher_momentum(done));
}

bool Trainer::every(std::int64_t steps) const {
  return steps > 0 && state_.step % steps == 0;
}

double Trainer::seconds_trained() const {
  return seconds_before_ + seconds_since(started_);
}

}  // namespace tessera
