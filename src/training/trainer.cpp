#include <cmath>
#include <filesystem>

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <nlohmann/json.hpp>

#include "src/training/trainer_ranks.h"
#include <tessera/base/error.h>
#include <tessera/base/job_error.h>
#include <tessera/base/log.h>
#include <tessera/base/random.h>
#include <tessera/base/text.h>
#include <tessera/distributed/agreement.h>
#include <tessera/evaluation/task.h>
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

// The averaged weights stand in the model while this lives.
class MeasuredWeights {
 public:
  explicit MeasuredWeights(WeightAverage* average) : average_(average) {
    if (average_ != nullptr) average_->swap();
  }
  ~MeasuredWeights() {
    if (average_ != nullptr) average_->swap();
  }
  MeasuredWeights(const MeasuredWeights&) = delete;
  MeasuredWeights& operator=(const MeasuredWeights&) = delete;

 private:
  WeightAverage* average_;
};

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
  on_first_rank(group_, "checking the evaluation tasks", [&] {
    return check_tasks(config_.evaluation.tasks, evaluation_context()), true;
  });
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

bool Trainer::read_back() {
  for (const StepResult& result : pending_) {
    std::vector<at::Tensor> scalars{result.loss, result.grad_norm};
    for (const auto& [name, term] : result.terms) scalars.push_back(term);
    for (at::Tensor& scalar : scalars) scalar = scalar.to(at::kFloat).reshape({});
    at::Tensor stacked = at::stack(scalars);
    group_.all_reduce(stacked);
    stacked = stacked.to(at::kCPU, at::kDouble) / group_.size();
    const std::vector<double> numbers(stacked.const_data_ptr<double>(),
                                      stacked.const_data_ptr<double>() + stacked.numel());
    for (const double value : numbers)
      if (!std::isfinite(value)) return report_not_finite(result, numbers);
    if (result.step % config_.log.every_steps == 0 || result.step == config_.training.steps)
      log_.record(to_record(result, numbers));
  }
  pending_.clear();
  return true;
}

StepRecord Trainer::to_record(const StepResult& result, const std::vector<double>& numbers) {
  StepRecord record;
  record.step = result.step;
  record.learning_rate = result.learning_rate;
  record.loss = numbers[0];
  record.grad_norm = numbers[1];
  for (std::size_t k = 0; k < result.terms.size(); ++k)
    record.terms.emplace_back(result.terms[k].first, numbers[k + 2]);
  for (const NamedParameter& parameter : parts_.optimizer->parameters())
    if (parameter.name == "logit_scale") record.logit_scale = parameter.tensor.item<double>();
  record.samples_per_second = window_.seconds > 0 ? static_cast<double>(window_.samples) / window_.seconds : 0;
  record.wait_share = window_.seconds > 0 ? window_.wait_seconds / window_.seconds : 0;
  record.seconds = state_.seconds;
  window_ = {};
  return record;
}

bool Trainer::report_not_finite(const StepResult& result, const std::vector<double>& numbers) {
  if (!group_.first()) return false;
  collect_checkpoint(false);
  std::string values = concat("loss ", numbers[0]);
  for (std::size_t k = 0; k < result.terms.size(); ++k)
    values += concat(", ", result.terms[k].first, " ", numbers[k + 2]);
  values += concat(", gradient norm ", numbers[1]);
  log::error("step ", result.step, ": not finite: ", values,
             "; stopped. Last good checkpoint: ", last_good_.empty() ? "none" : last_good_);
  return false;
}

EvaluationContext Trainer::evaluation_context() const {
  EvaluationContext context;
  context.source = parts_.validation;
  context.train_source = parts_.train;
  context.device = parts_.device;
  context.batch_size = config_.evaluation.batch_size;
  context.threads = config_.evaluation.threads;
  return context;
}

void Trainer::evaluate() {
  if (config_.evaluation.tasks.empty() || last_evaluated_ == state_.step) return;
  last_evaluated_ = state_.step;
  heartbeat_.enter("the evaluation", state_.step);
  on_first_rank(group_, "evaluation", [&] { return run_evaluation(), true; });
}

void Trainer::run_evaluation() {
  log_.clear();
  const MeasuredWeights measured(config_.evaluation.averaged ? &*parts_.average : nullptr);
  const EvaluationContext context = evaluation_context();
  auto results = nlohmann::json::array();
  for (const config::Choice& task : config_.evaluation.tasks) {
    const TaskResult result = run_task(task, *parts_.model, *parts_.tokenizer, context);
    log_.line(concat("step ", state_.step, ": ", summary_line(result)));
    std::vector<std::pair<std::string, double>> metrics;
    for (const auto& [name, value] : result.metrics) metrics.emplace_back(concat(result.task, ".", name), value);
    log_.evaluation(state_.step, metrics);
    results.push_back(to_json(result));
    if (interrupted() != 0) return;
  }
  std::filesystem::create_directories(folder_ + "/evaluation");
  io::write_file(folder_ + "/evaluation/" + step_folder_name(state_.step) + ".json",
                 nlohmann::json{{"step", state_.step}, {"results", results}}.dump(2) + "\n");
}

void Trainer::save_checkpoint(bool must) {
  heartbeat_.enter("saving", state_.step);
  last_save_ = Clock::now();
  if (last_saved_ != state_.step) {
    gather_positions();
    if (on_first_rank(group_, "saving the checkpoint", [&] { return write_checkpoint(must); }))
      last_saved_ = state_.step;
  } else if (must) {
    // The save of this step may still be under way, or have failed.
    on_first_rank(group_, "saving the checkpoint", [&] {
      const bool saved = collect_checkpoint(false) && !last_good_.empty() && step_of(last_good_) == state_.step;
      return saved || write_checkpoint(true);
    });
  }
}

bool Trainer::write_checkpoint(bool must) {
  collect_checkpoint(false);
  state_.seconds = seconds_trained();
  Checkpoint checkpoint;
  checkpoint.config = to_yaml(config_);
  checkpoint.state = state_;
  checkpoint.optimizer = parts_.optimizer->state();
  if (parts_.average) checkpoint.averaged = parts_.average->averages();
  checkpoint.model = {config_.model,
                      config_.tokenizer,
                      parts_.tokenizer->vocabulary_bytes(),
                      weights_of(*parts_.model, *parts_.objective),
                      {{"config", checkpoint.config}, {"step", std::to_string(state_.step)}}};
  writer_.begin(std::move(checkpoint));
  writing_step_ = state_.step;
  return config_.checkpoint.background && !must ? true : collect_checkpoint(must);
}

bool Trainer::collect_checkpoint(bool must) {
  if (!writer_.pending()) return true;
  try {
    last_good_ = writer_.collect();
    return true;
  } catch (const UserError& error) {
    const std::string kept =
        last_good_.empty() ? "there is no earlier checkpoint" : "the checkpoint before is " + last_good_;
    if (must) user_error("step ", writing_step_, " is not saved: ", error.what(), "; ", kept);
    log_.clear();
    log::error("step ", writing_step_, " is not saved: ", error.what(), "; ", kept,
               "; training goes on and the next save tries again");
    return false;
  }
}

bool Trainer::every(std::int64_t steps) const {
  return steps > 0 && state_.step % steps == 0;
}

double Trainer::seconds_trained() const {
  return seconds_before_ + seconds_since(started_);
}

}  // namespace tessera
