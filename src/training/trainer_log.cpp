// What a run tells about its steps.
#include <algorithm>
#include <cmath>

#include <ATen/ATen.h>

#include <tessera/training/trainer.h>

namespace tessera {

at::Tensor Trainer::mean_over_ranks(const FinishedStep& step) const {
  std::vector<at::Tensor> scalars{step.result.loss, step.grad_norm};
  for (const auto& [name, term] : step.result.terms) scalars.push_back(term);
  for (at::Tensor& scalar : scalars) scalar = scalar.to(parts_.device, at::kFloat).reshape({});
  at::Tensor stacked = at::stack(scalars);
  group_.all_reduce(stacked);
  return stacked / group_.size();
}

bool Trainer::read_back() {
  for (const FinishedStep& step : pending_) {
    const at::Tensor read = step.numbers.to(at::kCPU, at::kDouble);
    const std::vector<double> numbers(read.const_data_ptr<double>(), read.const_data_ptr<double>() + read.numel());
    const bool finite = std::all_of(numbers.begin(), numbers.end(), [](double value) { return std::isfinite(value); });
    if (finite) skipped_in_a_row_ = 0;
    if (!finite && step.verdict != UpdateGuard::Verdict::overflow && !go_on_after(step, numbers)) return false;
    if (step.result.step % config_.log.every_steps == 0 || step.result.step == config_.training.steps)
      log_.record(to_record(step, numbers));
  }
  pending_.clear();
  return true;
}

StepRecord Trainer::to_record(const FinishedStep& step, const std::vector<double>& numbers) {
  const StepResult& result = step.result;
  StepRecord record;
  record.step = result.step;
  record.learning_rate = step.learning_rate;
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

}  // namespace tessera
