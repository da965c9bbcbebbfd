// What a run tells about its steps.
#include <algorithm>
#include <cmath>

#include <ATen/ATen.h>

#include <tessera/measure/machine.h>
#include <tessera/training/trainer.h>

namespace tessera {

at::Tensor Trainer::mean_over_ranks(const PendingUpdate& step) const {
  std::vector<at::Tensor> scalars{step.result.loss, step.norms.global};
  for (const auto& [name, term] : step.result.terms) scalars.push_back(term);
  scalars.insert(scalars.end(), step.norms.groups.begin(), step.norms.groups.end());
  for (at::Tensor& scalar : scalars) scalar = scalar.to(run_.device, at::kFloat).reshape({});
  at::Tensor stacked = at::stack(scalars);
  group_.all_reduce(stacked);
  return stacked / group_.size();
}

bool Trainer::read_back() {
  for (const PendingUpdate& step : pending_) {
    const at::Tensor read = step.numbers.to(at::kCPU, at::kDouble);
    const std::vector<double> numbers(read.const_data_ptr<double>(), read.const_data_ptr<double>() + read.numel());
    const bool finite = std::all_of(numbers.begin(), numbers.end(), [](double value) { return std::isfinite(value); });
    if (finite) skipped_in_a_row_ = 0;
    if (!finite && step.decision != NonFiniteGuard::StepDecision::overflow && !go_on_after(step, numbers)) return false;
    if (step.result.step % config_.log.every_steps == 0 || step.result.step == config_.training.steps)
      log_.record(to_record(step, numbers));
  }
  if (log_.page_due()) show("running");
  pending_.clear();
  return true;
}

MetricsRow Trainer::to_record(const PendingUpdate& step, const std::vector<double>& numbers) {
  const AccumulatedLosses& result = step.result;
  MetricsRow record;
  record.step = result.step;
  record.learning_rate = step.learning_rate;
  record.loss = numbers[0];
  record.grad_norm = numbers[1];
  for (std::size_t k = 0; k < result.terms.size(); ++k)
    record.terms.emplace_back(result.terms[k].first, numbers[k + 2]);
  for (std::size_t k = 0; k < grad_norm_groups_.names.size(); ++k)
    record.grad_norms.emplace_back(grad_norm_groups_.names[k], numbers[2 + result.terms.size() + k]);
  for (const NamedParameter& parameter : run_.optimizer->parameters())
    if (parameter.name == "logit_scale") record.logit_scale = parameter.tensor.item<double>();
  record.samples_per_second = window_.seconds > 0 ? static_cast<double>(window_.samples) / window_.seconds : 0;
  record.wait_share = window_.seconds > 0 ? window_.wait_seconds / window_.seconds : 0;
  record.seconds = state_.seconds;
  record.tflops = mfu_.tflops(record.samples_per_second / group_.size());
  record.mfu = mfu_.share(record.tflops);
  const MemoryUse memory = memory_use(run_.device);
  record.resident = memory.resident;
  record.resident_peak = memory.resident_peak;
  record.device_peak = memory.device_peak;
  watch_waiting();
  window_ = {.loader = run_.loader->statistics()};
  return record;
}

void Trainer::watch_waiting() {
  const LoaderStatistics now = run_.loader->statistics();
  const DataWindow window{window_.seconds, window_.wait_seconds, now.work_seconds - window_.loader.work_seconds,
                          now.cpu_seconds - window_.loader.cpu_seconds};
  if (const auto line = input_bound_.note(window, seconds_trained())) log_.warning(*line);
}

Trainer::PendingUpdate Trainer::observed_step() {
  profiler_.before(state_.step + 1);
  std::optional<FlopCounter> counter;
  if (mfu_.wants_count()) counter.emplace();
  PendingUpdate step = train_step();
  if (counter) {
    mfu_.counted(*counter, step.result.samples / group_.size());
    log_.line(mfu_.describe());
  }
  if (const auto trace = profiler_.after(state_.step)) log_.line("profiler's trace: " + *trace);
  return step;
}

}  // namespace tessera
