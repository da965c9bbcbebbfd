// What a run tells about its steps.
#include <cmath>

#include <ATen/ATen.h>

#include <tessera/base/log.h>
#include <tessera/base/text.h>
#include <tessera/training/trainer.h>

namespace tessera {

bool Trainer::read_back() {
  for (const FinishedStep& step : pending_) {
    const StepResult& result = step.result;
    std::vector<at::Tensor> scalars{result.loss, step.grad_norm};
    for (const auto& [name, term] : result.terms) scalars.push_back(term);
    for (at::Tensor& scalar : scalars) scalar = scalar.to(at::kFloat).reshape({});
    at::Tensor stacked = at::stack(scalars);
    group_.all_reduce(stacked);
    stacked = stacked.to(at::kCPU, at::kDouble) / group_.size();
    const std::vector<double> numbers(stacked.const_data_ptr<double>(),
                                      stacked.const_data_ptr<double>() + stacked.numel());
    for (const double value : numbers)
      if (!std::isfinite(value)) return report_not_finite(step, numbers);
    if (result.step % config_.log.every_steps == 0 || result.step == config_.training.steps)
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

bool Trainer::report_not_finite(const FinishedStep& step, const std::vector<double>& numbers) {
  const StepResult& result = step.result;
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

}  // namespace tessera
