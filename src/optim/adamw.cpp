#include <algorithm>
#include <cmath>
#include <cstring>

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>

#include "src/ops/kernel_call.h"
#include "src/optim/adamw.h"

namespace tessera {

AdamW::AdamW(std::vector<NamedParameter> parameters, const AdamWSettings& settings, const HasMoment& has)
    : Optimizer(std::move(parameters), settings.decay, settings.lr, {"exp_avg", "exp_avg_sq"}, has), settings_(settings) {
  const bool all = std::all_of(this->parameters().begin(), this->parameters().end(), [](const NamedParameter& each) {
    return each.tensor.is_cuda() && each.tensor.scalar_type() == at::kFloat && each.tensor.is_non_overlapping_and_dense() &&
           has_kernels(each.tensor);
  });
  if (all && !settings_.update_clipping) kernel_ = kernels::cuda::adamw_update;
}

void AdamW::round_moments(std::uint64_t seed) {
  kernel_ = nullptr;
  Optimizer::round_moments(seed);
}

void AdamW::update(std::vector<Group>& groups) {
  const auto [beta1, beta2] = settings_.betas;
  if (kernel_ != nullptr) {
    for (const Group& group : groups) run_kernel(group);
    return;
  }
  for (Group& group : groups) {
    auto &exp_avg = group.moments[0], &exp_avg_sq = group.moments[1];
    const at::Tensor count = group.count.to(at::kFloat);
    if (!settings_.update_clipping) {
      const std::vector<at::Tensor> counts(group.parameters.size(), count);
      at::_fused_adamw_(group.parameters, group.gradients, exp_avg, exp_avg_sq, /*max_exp_avg_sqs=*/{}, counts,
                        group.learning_rate, beta1, beta2, group.weight_decay, settings_.eps, /*amsgrad=*/false,
                        /*maximize=*/false, /*grad_scale=*/std::nullopt, group.found_inf);
      continue;
    }
    const std::vector<at::Tensor> rates = clipped_rates(group);  // also of groups without parameters, because it may wait for other ranks
    for (std::size_t i = 0; i < rates.size(); ++i)
      at::_fused_adamw_(group.parameters[i], group.gradients[i], exp_avg[i], exp_avg_sq[i], /*max_exp_avg_sqs=*/{},
                        count, rates[i], beta1, beta2, group.weight_decay, settings_.eps, /*amsgrad=*/false,
                        /*maximize=*/false, /*grad_scale=*/std::nullopt, group.found_inf);
  }
}

void AdamW::run_kernel(const Group& group) {
  const c10::OptionalDeviceGuard device(group.count.device());
  const Table& table = table_of(group);
  std::vector<const float*> gradients;
  for (const at::Tensor& gradient : group.gradients) gradients.push_back(gradient.const_data_ptr<float>());
  const bool recorded = group.inputs->numbers.defined();
  const at::Tensor numbers = recorded ? group.inputs->numbers : at::empty({2}, group.count.options());
  if (!recorded) {
    numbers[0].fill_(group.learning_rate);
    numbers[1].fill_(group.weight_decay);
  }
  kernels::AdamWUpdate call;
  call.tensors = static_cast<std::int64_t>(table.tensors.size());
  call.chunks = table.chunks;
  call.table = table.memory.mutable_data_ptr();
  call.gradients = gradients.data();
  call.learning_rate = numbers.const_data_ptr<double>();
  call.weight_decay = call.learning_rate + 1;
  call.count = group.count.const_data_ptr<double>();
  if (recorded) {
    call.learning_rate_scale = group.learning_rate_scale;
    call.weight_decay_scale = group.weight_decay_scale;
  }
  call.beta1 = settings_.betas[0];
  call.beta2 = settings_.betas[1];
  call.epsilon = settings_.eps;
  if (group.inputs->factor.defined()) call.factor = group.inputs->factor.const_data_ptr<float>();
  if (group.found_inf) call.found_inf = group.found_inf->const_data_ptr<float>();
  check_status(kernel_(call, current_stream(group.count)));
}

const AdamW::Table& AdamW::table_of(const Group& group) {
  std::vector<kernels::AdamWTensor> tensors;
  for (std::size_t i = 0; i < group.parameters.size(); ++i) {
    const at::Tensor copy = copies_.written_by_updates(group.parameters[i]);
    tensors.push_back({group.parameters[i].mutable_data_ptr<float>(), group.moments[0][i].mutable_data_ptr<float>(),
                       group.moments[1][i].mutable_data_ptr<float>(),
                       copy.defined() ? static_cast<std::uint16_t*>(copy.mutable_data_ptr()) : nullptr, group.parameters[i].numel()});
  }
  Table& table = tables_[group.indices];
  const auto same = [](const kernels::AdamWTensor& a, const kernels::AdamWTensor& b) { return std::memcmp(&a, &b, sizeof(a)) == 0; };
  if (std::equal(tensors.begin(), tensors.end(), table.tensors.begin(), table.tensors.end(), same)) return table;
  if (table.memory.defined()) old_tables_.push_back(table.memory);
  kernels::AdamWTable made = kernels::adamw_table(tensors);
  const at::Tensor bytes = at::from_blob(made.bytes.data(), {static_cast<std::int64_t>(made.bytes.size())}, at::kByte);
  table = {std::move(tensors), made.chunks, bytes.to(group.count.device(), at::kByte, /*non_blocking=*/false, /*copy=*/true)};
  return table;
}

void AdamW::after_update(const std::vector<std::size_t>& updated) {
  for (const std::size_t index : updated) copies_.mark_written(parameters()[index].tensor);
}

std::vector<at::Tensor> AdamW::clipped_rates(const Group& group) const {
  const double beta2 = settings_.betas[1];
  if (group.indices.empty()) return whole_sums(group, {});
  std::vector<at::Tensor> second = at::_foreach_mul(group.moments[1], beta2);
  at::_foreach_addcmul_(second, group.gradients, group.gradients, 1 - beta2);
  at::_foreach_div_(second, (1 - at::pow(beta2, group.count)).to(second[0].scalar_type()));
  at::_foreach_clamp_min_(second, settings_.eps * settings_.eps);
  std::vector<at::Tensor> sums, rates;
  for (std::size_t i = 0; i < second.size(); ++i) sums.push_back((group.gradients[i].square() / second[i]).sum());
  sums = whole_sums(group, sums);
  for (std::size_t i = 0; i < second.size(); ++i) {
    const at::Tensor rms = (sums[i] / parameters()[group.indices[i]].tensor.numel()).sqrt();
    rates.push_back((group.learning_rate / at::clamp_min(rms, 1.0)).to(at::kFloat));
  }
  return rates;
}

}  // namespace tessera
