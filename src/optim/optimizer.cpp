#include <algorithm>
#include <set>
#include <tuple>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include "src/distributed/optimizer_sharding.h"
#include <tessera/base/error.h>
#include <tessera/optim/optimizer.h>

namespace tessera {

bool decays(const NamedParameter& parameter, const DecaySettings& settings) {
  if (parameter.tensor.dim() < 2) return false;
  return std::none_of(settings.no_decay.begin(), settings.no_decay.end(),
                      [&](const std::string& part) { return parameter.name.find(part) != std::string::npos; });
}

Optimizer::Optimizer(std::vector<NamedParameter> parameters, const DecaySettings& decay, double peak,
                     std::vector<std::string> moments)
    : parameters_(std::move(parameters)),
      weight_decay_(decay.weight_decay),
      moment_names_(std::move(moments)),
      moments_(moment_names_.size()),
      peak_(peak) {
  std::set<std::string> names;
  for (const NamedParameter& parameter : parameters_) {
    if (!names.insert(parameter.name).second) user_error("optimizer: two parameters are named ", parameter.name);
    decays_.push_back(decays(parameter, decay));
    // A moment must have the same memory layout as its parameter, because the fused operators read both in parallel.
    for (std::vector<at::Tensor>& moment : moments_) moment.push_back(at::zeros_like(parameter.tensor));
  }
}

void Optimizer::shard(const ProcessGroup& group, double bucket_mb) {
  TORCH_CHECK(steps_ == 0 && !shards_, "optimizer: shard() must be called at most once, and before the first step");
  if (group.alone()) return;
  shards_ = Shards{group, bucket_mb, balanced_owners(tensors(), group.size())};
  for (std::vector<at::Tensor>& moment : moments_)
    for (std::size_t i = 0; i < moment.size(); ++i)
      if (!owns(i)) moment[i] = at::empty_like(moment[i], moment[i].options().device(at::kMeta));
}

bool Optimizer::owns(std::size_t index) const {
  return !shards_ || shards_->owners[index] == shards_->group.rank();
}

std::string Optimizer::moment_name(std::size_t moment, std::size_t index) const {
  return moment_names_[moment] + "." + parameters_[index].name;
}

std::vector<at::Tensor> Optimizer::tensors() const {
  std::vector<at::Tensor> out;
  for (const NamedParameter& parameter : parameters_) out.push_back(parameter.tensor);
  return out;
}

std::vector<Optimizer::Group> Optimizer::groups(const UpdateInputs& inputs) const {
  const at::Tensor &found_inf = inputs.found_inf, &numbers = inputs.numbers;
  const bool read = numbers.defined() && numbers.is_cpu();
  const double learning_rate = read ? numbers[0].item<double>() : inputs.learning_rate;
  const double weight_decay = read ? numbers[1].item<double>() : inputs.weight_decay.value_or(weight_decay_);
  std::map<std::tuple<double, double, std::int64_t, at::ScalarType, c10::DeviceType, int>, Group> by_key;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const at::Tensor& parameter = parameters_[i].tensor;
    at::Tensor gradient = parameter.grad();
    if (!gradient.defined() || frozen(i)) continue;
    if (gradient.strides() != parameter.strides()) gradient = at::empty_like(parameter).copy_(gradient);
    const double decay = decays_[i] ? weight_decay : 0.0;
    Group& group = by_key[{parameters_[i].lr_scale, decay, parameters_[i].frozen_steps, parameter.scalar_type(),
                           parameter.device().type(), parameter.device().index()}];
    if (!group.count.defined()) {
      const auto frozen_steps = static_cast<double>(parameters_[i].frozen_steps);
      group.count = numbers.defined() ? numbers[2] - frozen_steps
                                      : at::full({}, static_cast<double>(steps_ + 1) - frozen_steps, parameter.options().dtype(at::kDouble));
      group.inputs = &inputs;
      group.learning_rate_scale = parameters_[i].lr_scale;
      group.weight_decay_scale = decays_[i] ? 1.0 : 0.0;
      if (found_inf.defined()) group.found_inf = found_inf;
      if (missed_.defined()) group.count = group.count - missed_.to(parameter.device());
      if (missed_.defined() && parameters_[i].frozen_steps > 0) {
        // Skipped steps do not count as frozen steps, but so far only the device knows them.
        const at::Tensor still_frozen = (group.count < 1).to(at::kFloat);
        group.found_inf = found_inf.defined() ? at::maximum(found_inf, still_frozen) : still_frozen;
        group.count.clamp_min_(1);
      }
    }
    group.learning_rate = learning_rate * parameters_[i].lr_scale;
    group.weight_decay = decay;
    group.indices.push_back(i);
    group.parameters.push_back(parameter);
    group.gradients.push_back(gradient);
    group.moments.resize(moments_.size());
    for (std::size_t k = 0; k < moments_.size(); ++k) group.moments[k].push_back(moments_[k][i]);
  }
  std::vector<Group> out;
  for (auto& [key, group] : by_key) out.push_back(std::move(group));
  return out;
}

std::vector<Optimizer::Group> Optimizer::own(const std::vector<Group>& all) const {
  std::vector<Group> out;
  for (const Group& group : all) {
    Group mine = group;
    for (auto* list : {&mine.parameters, &mine.gradients}) list->clear();
    mine.indices.clear();
    mine.moments.assign(group.moments.size(), {});
    for (std::size_t i = 0; i < group.indices.size(); ++i) {
      if (!owns(group.indices[i])) continue;
      mine.indices.push_back(group.indices[i]);
      mine.parameters.push_back(group.parameters[i]);
      mine.gradients.push_back(group.gradients[i]);
      for (std::size_t k = 0; k < mine.moments.size(); ++k) mine.moments[k].push_back(group.moments[k][i]);
    }
    if (!mine.indices.empty()) out.push_back(std::move(mine));
  }
  return out;
}

void Optimizer::step(const UpdateInputs& inputs) {
  update_weights(inputs);
  count_update();
}

void Optimizer::update_weights(const UpdateInputs& inputs) {
  TORCH_CHECK(!inputs.factor.defined() || applies_factor(), "optimizer: this optimizer applies no factor to gradients");
  const c10::NoGradGuard no_grad;
  std::vector<Group> with_gradient = groups(inputs);
  measure(with_gradient);
  if (shards_) with_gradient = own(with_gradient);
  updated_.clear();
  for (const Group& group : with_gradient) updated_.insert(updated_.end(), group.indices.begin(), group.indices.end());
  update(with_gradient);
  if (inputs.found_inf.defined()) {
    if (!missed_.defined()) missed_ = at::zeros_like(inputs.found_inf, inputs.found_inf.options().dtype(at::kDouble));
    missed_.add_(inputs.found_inf);
  }
  if (shards_) broadcast_from_owners(tensors(), shards_->owners, shards_->group, shards_->bucket_mb);
}

void Optimizer::count_update() {
  ++steps_;
  // Neither the kernel of an update nor a replay of a recorded update tells LibTorch that the parameters have changed.
  // The transfer of a sharded update's results does not tell LibTorch either.
  const auto bump = [](const NamedParameter& parameter) { parameter.tensor.unsafeGetTensorImpl()->bump_version(); };
  if (shards_)
    for (const NamedParameter& parameter : parameters_) bump(parameter);
  else
    for (const std::size_t index : updated_) bump(parameters_[index]);
  after_update(updated_);
}

bool Optimizer::can_be_recorded() const {
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    if (frozen(i) || (!parameters_[i].tensor.is_cpu() && !uses_device_numbers())) return false;
  // Skipped updates may keep a parameter frozen for longer than the host knows.
  return !shards_ && std::none_of(parameters_.begin(), parameters_.end(), [](const NamedParameter& each) { return each.frozen_steps > 0; });
}

void Optimizer::take_back(std::int64_t count) {
  steps_ -= count;
  if (missed_.defined()) missed_.sub_(static_cast<double>(count));
}

void Optimizer::zero_grad() {
  for (NamedParameter& parameter : parameters_) parameter.tensor.mutable_grad().reset();
}

std::map<std::string, at::Tensor> Optimizer::state() const {
  std::map<std::string, at::Tensor> out{{"step", at::scalar_tensor(steps_, at::kLong)}};
  for (std::size_t k = 0; k < moments_.size(); ++k)
    for (std::size_t i = 0; i < parameters_.size(); ++i)
      if (owns(i)) out[moment_name(k, i)] = moments_[k][i];
  return out;
}

std::map<std::string, at::Tensor> Optimizer::gather_state() const {
  if (!shards_) return state();
  std::map<std::string, at::Tensor> out{{"step", at::scalar_tensor(steps_, at::kLong)}};
  for (std::size_t k = 0; k < moments_.size(); ++k)
    for (std::size_t i = 0; i < parameters_.size(); ++i)
      out[moment_name(k, i)] = send_to_first(moments_[k][i], shards_->owners[i], shards_->group);
  if (!shards_->group.first()) out.clear();
  return out;
}

void Optimizer::load_state(const std::map<std::string, at::Tensor>& state, const std::string& origin) {
  const c10::NoGradGuard no_grad;
  std::map<std::string, at::Tensor> whole{{"step", at::scalar_tensor(steps_, at::kLong)}};
  for (std::size_t k = 0; k < moments_.size(); ++k)
    for (std::size_t i = 0; i < parameters_.size(); ++i) whole[moment_name(k, i)] = moments_[k][i];
  for (const auto& [name, tensor] : whole) {
    const auto found = state.find(name);
    if (found == state.end()) user_error(origin, ": the optimizer's state lacks ", name);
    if (found->second.sizes() != tensor.sizes())
      user_error(origin, ": the optimizer's ", name, " has shape ", found->second.sizes(), ", expected ",
                 tensor.sizes());
  }
  for (const auto& [name, tensor] : state)
    if (!whole.contains(name))
      user_error(origin, ": the optimizer's state holds ", name, ", which no parameter here has");
  for (auto& [name, tensor] : whole)
    if (!tensor.is_meta()) tensor.copy_(state.at(name));
  steps_ = whole.at("step").item<std::int64_t>();
  if (missed_.defined()) missed_.zero_();
}

}  // namespace tessera
