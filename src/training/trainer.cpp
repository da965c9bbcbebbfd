#include <ATen/ATen.h>

#include "src/base/clock.h"
#include "src/base/job_error.h"
#include "src/distributed/agreement.h"
#include "src/measure/machine.h"
#include "src/training/interrupt.h"
#include "src/training/run/epochs.h"
#include "src/training/run/run_evaluation.h"
#include "src/training/trainer.h"
#include <tessera/base/error.h>
#include <tessera/base/log.h>
#include <tessera/base/text.h>
#include <tessera/base/version.h>
#include <tessera/io/atomic_file.h>
#include <tessera/optim/schedule.h>

namespace tessera {

namespace {

using Clock = std::chrono::steady_clock;

// How many steps may run before their losses are read back; this bounds the work lost to a non-finite step.
constexpr std::int64_t kMostUnread = 16;

/// Returns the tensors that a step may change besides the optimizer: the buffers, and the objective's numbers, which after_step() clamps.
std::vector<at::Tensor> changed_by_a_step(const TrainingRun& run) {
  std::vector<at::Tensor> out = collect_buffers(run);
  for (at::Tensor& parameter : run.objective->parameters())
    if (parameter.numel() == 1) out.push_back(std::move(parameter));
  return out;
}

}  // namespace

Trainer::Trainer(const Config& config, const Resume& resume, const ProcessGroup& group)
    : config_(with_steps(config, group)),
      group_(group),
      heartbeat_(group, config.distributed.heartbeat),
      folder_(config.run.path()),
      use_(folder_use(config, group)),
      lock_(take_run_folder(config, group, use_)),
      mirror_(begin_mirror(config, resume.from, group, use_)),
      tiles_(settle_chunks(config_, group)),
      run_(build_on_all_ranks(config_, group)),
      gradients_(make_reducer(run_, config, group)),
      runner_(config_, group_, run_, gradients_, heartbeat_),
      scale_(config.training.precision == "fp16", run_.device),
      guard_(changed_by_a_step(run_), scale_),
      grad_norm_groups_(grad_norm_groups(*run_.optimizer)),
      monitor_(config_, group_, run_, folder_),
      checkpoints_(config_, group_, run_, folder_, use_.separate, mirror_.get(), [this](const std::string& text) { monitor_.log().error(text); }),
      non_finite_(config_, group_, run_, runner_, guard_, checkpoints_, monitor_.log(), folder_),
      pacer_([this] { return mark_device(run_.device); }) {
  if (group_.first()) {
    log::set_file(folder_ + "/log.txt");
    log::info(version_line());
  } else {
    log::set_level(log::Level::warning);
  }
  run_on_rank0(group_, "checking the evaluation tasks", [&] { return check_evaluation(run_, config_), true; });
  runner_.record_update([this](const AccumulatedLosses& losses, const UpdateInputs& inputs) { return clip_and_update(losses, inputs); });
  runner_.batches().give_notice([this] {
    const PartWriter::Told part = checkpoints_.parts().told();
    return SharedBatches::Notice{interrupted(), group_.first() && checkpoints_.overdue(), part.done, part.failed};
  });
  runner_.look_at_batches([this](const Batch& batch) { monitor_.look_at(batch); });
  restore_or_initialize(resume);
  settle_micro_batch();
  const std::string written = to_yaml_anywhere(config_);  // all ranks, because it may throw
  if (!group_.first()) return;
  io::write_file(folder_ + "/config.yaml", "# " + version_line() + "\n" + written);
  print_plan();
  warn_of_settings();
}

Outcome Trainer::run() {
  const InterruptGuard guard;
  try {
    const Outcome outcome = show(train());
    checkpoints_.finish_mirror();
    return outcome;
  } catch (const UserError& error) {
    monitor_.show(state_, "failed", false, error.what());
    throw;
  } catch (const std::exception& error) {
    const std::string text = error.what(), what = text.substr(0, text.find('\n'));
    monitor_.show(state_, "failed", false, what);
    if (out_of_memory(error)) explain_out_of_memory();
    if (group_.size() == 1) throw;
    throw JobError(concat(heartbeat_.explain(), "; seen from rank ", group_.rank(), " after step ", state_.step, " (",
                          what, "); continue with --resume auto"));
  }
}

Outcome Trainer::train() {
  started_ = Clock::now();
  seconds_before_ = state_.seconds;
  const std::int64_t begin = state_.step;
  if (config_.evaluation.at_start && begin == 0 && !evaluate()) return interrupted_at_step();
  if (!make_up_evaluation()) return interrupted_at_step();
  while (state_.step < config_.training.steps) {
    monitor_.observe(state_.step + 1, [&] { return train_step(); });
    const auto [signal, save_due, part_done, part_failed] = runner_.batches().noticed();
    checkpoints_.parts().hear({part_done, part_failed});
    const bool due_to_save = every(config_.checkpoint.every_steps) || save_due;
    const bool due_to_read = every(config_.log.every_steps) || every(config_.evaluation.every_steps) || due_to_save ||
                             signal != 0 || state_.step == config_.training.steps || monitor_.unread() == kMostUnread;
    const std::int64_t made = state_.step;
    if (due_to_read && !read_back()) return Outcome::not_finite;
    if (state_.step != made) continue;  // a step was skipped, and the steps after it are computed again
    monitor_.log().tick(state_.step);
    if (due_to_save) save(false);
    if (signal != 0) return interrupted_at_step();  // if an evaluation is due, the resumed session runs it
    if (!every(config_.evaluation.every_steps)) continue;
    // A signal may arrive during the evaluation, because an evaluation takes long. After the last step the signal is ignored, because there
    // is nothing left to stop.
    if (!evaluate() || (state_.step < config_.training.steps && signal_of_ranks() != 0)) return interrupted_at_step();
  }
  save(true);
  if (!evaluate()) return interrupted_at_step();
  const std::string model = checkpoints_.last_good() + "/model.safetensors";
  monitor_.log().line(begin == state_.step
                          ? concat("nothing left to train; the model is ", model)
                          : concat("finished ", with_thousands(state_.step), " steps, ", with_thousands(state_.samples),
                                   " samples in ", format_duration(state_.seconds), "; the model is ", model));
  return Outcome::finished;
}

Outcome Trainer::interrupted_at_step() {
  stop_signal_ = signal_of_ranks();
  save(true);
  monitor_.log().line(concat("stopped by a signal after step ", state_.step, "; continue with --resume auto"));
  return Outcome::interrupted;
}

TrainedStep Trainer::train_step() {
  pacer_.begin_step();
  TrainedStep step;
  step.before = state_;
  step.learning_rate =
      learning_rate_at(state_.step, config_.schedule, run_.optimizer->peak_learning_rate(), config_.training.steps);
  guard_.begin();
  if (scale_.scale().defined()) step.scale = scale_.numbers();
  UpdateInputs inputs;
  inputs.learning_rate = step.learning_rate;
  inputs.weight_decay = weight_decay_at(state_.step, config_.schedule, run_.optimizer->weight_decay(), config_.training.steps);
  if (runner_.records_update()) {
    const std::vector<double> numbers = {inputs.learning_rate, *inputs.weight_decay, static_cast<double>(run_.optimizer->steps_taken() + 1)};
    inputs.numbers = at::tensor(numbers, at::kDouble).to(run_.device, /*non_blocking=*/true);
  }
  step.losses = runner_.run(state_.step, scale_.scale(), inputs.numbers);
  heartbeat_.enter("the optimizer", step.losses.step);
  const StepUpdate made = step.losses.updated ? runner_.recorded_update() : clip_and_update(step.losses, inputs);
  step.numbers = step.losses.updated ? made.numbers.clone() : made.numbers;  // the next step overwrites the recording's tensors
  step.decision = step.losses.updated ? made.decision.clone() : made.decision;
  finish_update();

  state_.step = step.losses.step;
  state_.samples += step.losses.samples;
  state_.data = run_.loader->position();
  state_.seconds = seconds_trained();
  step.after = state_;
  pacer_.end_step();
  return step;
}

StepUpdate Trainer::clip_and_update(const AccumulatedLosses& losses, UpdateInputs inputs) {
  scale_.unscale(run_.optimizer->gradients());
  const ClipMode mode = config_.training.clip_mode == "per_tensor" ? ClipMode::per_tensor : ClipMode::global;
  const GradientNorms norms = clip_gradients(*run_.optimizer, grad_norm_groups_, config_.training.clip_norm, mode);
  const at::Tensor numbers = step_numbers(losses, norms, group_, run_.device), decision = guard_.check(numbers);
  inputs.found_inf = guard_.found_inf();
  inputs.factor = norms.factor;
  run_.optimizer->update_weights(inputs);
  return {numbers, decision};
}

void Trainer::finish_update() {
  run_.optimizer->count_update();
  const StepContext done = step_context(run_, config_, group_, state_.step);
  run_.objective->after_step(done);
  guard_.keep_buffers();
  if (run_.ema) run_.ema->update(state_.step + 1, guard_.found_inf());
  if (run_.teacher) run_.teacher->ema.update_with(run_.objective->teacher_momentum(done), guard_.found_inf());
}

bool Trainer::read_back() {
  const std::vector<TrainedStep> steps = monitor_.read_back();
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const bool halted = steps[i].decided == NonFiniteGuard::StepDecision::halted;
    const std::size_t wasted = halted ? steps.size() - 1 - i : 0;
    if (!non_finite_.go_on_after(steps[i], static_cast<std::int64_t>(wasted), state_)) return false;
    monitor_.record(steps[i].row, state_);
    if (halted) break;
  }
  state_.loss_scale = scale_.state();
  return true;
}

void Trainer::save(bool must) {
  heartbeat_.enter("saving", state_.step);
  state_.seconds = seconds_trained();
  monitor_.leave_out([&] { checkpoints_.save(state_, must); });
  monitor_.show(state_);
}

Outcome Trainer::show(Outcome outcome) {
  const std::string& last_good = checkpoints_.last_good();
  switch (outcome) {
    case Outcome::finished:
      monitor_.show(state_, "finished", true, concat("The model is ", last_good, "/model.safetensors"));
      break;
    case Outcome::interrupted:
      monitor_.show(state_, "interrupted", true, "Stopped by a signal, state saved: continue with --resume auto");
      break;
    case Outcome::not_finite:
      monitor_.show(
          state_, "not finite", false,
          "A loss or gradient was NaN or infinite. Last good checkpoint: " + (last_good.empty() ? "none" : last_good));
      break;
  }
  return outcome;
}

bool Trainer::every(std::int64_t steps) const {
  return steps > 0 && state_.step % steps == 0;
}

double Trainer::seconds_trained() const {
  return seconds_before_ + seconds_since(started_);
}

}  // namespace tessera
