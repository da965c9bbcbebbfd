#include <algorithm>
#include <set>
#include <tuple>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include "src/distributed/optimizer_sharding.h"
#include "src/optim/stochastic_rounding.h"
#include <tessera/base/error.h>
#include <tessera/base/random.h>
#include <tessera/optim/optimizer.h>

namespace tessera {

bool decays(const NamedParameter& parameter, const DecaySettings& settings) {
  if (parameter.tensor.dim() < 2) return false;
  return std::none_of(settings.no_decay.begin(), settings.no_decay.end(),
                      [&](const std::string& part) { return parameter.name.find(part) != std::string::npos; });
}

Optimizer::Optimizer(std::vector<NamedParameter> parameters, const DecaySettings& decay, double peak,
                     std::vector<std::string> moments, const HasMoment& has)
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
    for (std::size_t k = 0; k < moments_.size(); ++k)
      moments_[k].push_back(!has || has(k, parameter) ? at::empty_like(parameter.tensor, parameter.tensor.options().device(at::kMeta)) : at::Tensor());
  }
}

void Optimizer::shard(const ProcessGroup& group, double bucket_mb, bool gradients) {
  TORCH_CHECK(steps_ == 0 && !shards_, "optimizer: shard() must be called at most once, and before the first step");
  if (group.alone()) return;
  std::vector<bool> whole;
  for (std::size_t i = 0; i < parameters_.size(); ++i) whole.push_back(!divisible(i));
  shards_ = std::make_shared<FlatShards>(tensors(), whole, group, bucket_mb);
  if (gradients) gradients_ = std::make_shared<GradientShards>(shards_);
  // Moments that have been looked at before are allocated again, because they are all zero.
  allocated_ = false;
  for (std::vector<at::Tensor>& moment : moments_)
    for (at::Tensor& each : moment)
      if (each.defined()) each = at::empty_like(each, each.options().device(at::kMeta));
}

// The moments are only allocated now, because until then a rank does not know which it keeps, and in which type.
std::vector<std::vector<at::Tensor>>& Optimizer::moments() const {
  if (std::exchange(allocated_, true)) return moments_;
  for (std::vector<at::Tensor>& moment : moments_)
    for (std::size_t i = 0; i < moment.size(); ++i) {
      if (!moment[i].defined()) continue;
      const at::Tensor part = own_part(i, moment[i]);
      moment[i] = at::empty_strided(part.sizes(), part.strides(), part.options().device(parameters_[i].tensor.device())).zero_();
    }
  return moments_;
}

const at::Tensor& Optimizer::gradient(std::size_t index) const {
  return gradients_ ? gradients_->own[index] : parameters_[index].tensor.grad();
}

std::vector<at::Tensor> Optimizer::gradients() const {
  std::vector<at::Tensor> out;
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    if (gradient(i).defined()) out.push_back(gradient(i));
  return out;
}

at::Tensor Optimizer::norms_over_ranks(const at::Tensor& own) const {
  if (!gradients_) return own;
  at::Tensor squares = own.square();
  shards_->group().all_reduce(squares);
  return squares.sqrt();
}

void Optimizer::round_moments(std::uint64_t seed) {
  TORCH_CHECK(steps_ == 0 && !rounding_, "optimizer: round_moments() must be called at most once, and before the first step");
  rounding_ = seed;
  for (std::vector<at::Tensor>& moment : moments_)
    for (at::Tensor& each : moment)
      if (each.defined()) each = each.to(at::kBFloat16);
}

// Returns the elements that this rank owns of a tensor with the parameter's shape and strides: [n], or the parameter's shape if it is
// indivisible. Without shards, these are all.
at::Tensor Optimizer::own_part(std::size_t index, const at::Tensor& whole) const {
  if (!shards_) return whole;
  const std::optional<Piece>& piece = shards_->own(index);
  if (!piece) return elements_of(whole).slice(0, 0, 0);
  return divisible(index) ? elements_of(whole).slice(0, piece->begin, piece->end) : whole.detach();
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
    at::Tensor gradient = this->gradient(i);
    if (!gradient.defined() || frozen(i)) continue;
    if (!gradients_ && gradient.strides() != parameter.strides()) gradient = at::empty_like(parameter).copy_(gradient);
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
    group.moments.resize(moments().size());
    for (std::size_t k = 0; k < moments().size(); ++k) group.moments[k].push_back(moments()[k][i]);
  }
  std::vector<Group> out;
  for (auto& [key, group] : by_key) out.push_back(std::move(group));
  return out;
}

std::vector<Optimizer::Group> Optimizer::own(const std::vector<Group>& all) const {
  std::vector<Group> out;
  for (const Group& group : all) {
    Group mine = group.only([this](std::size_t index) { return shards_->own(index).has_value(); });
    for (std::size_t i = 0; i < mine.indices.size(); ++i) {
      mine.parameters[i] = own_part(mine.indices[i], mine.parameters[i]);
      if (!gradients_) mine.gradients[i] = own_part(mine.indices[i], mine.gradients[i]);
    }
    if (!mine.indices.empty() || uses_whole_sums()) out.push_back(std::move(mine));
  }
  return out;
}

std::vector<at::Tensor> Optimizer::whole_sums(const Group& group, const std::vector<at::Tensor>& sums) const {
  if (!shards_) return sums;
  at::Tensor all = at::zeros({std::ssize(parameters_)}, group.count.options());
  if (sums.empty()) {
    shards_->group().all_reduce(all);
    return {};
  }
  const std::vector<std::int64_t> indices(group.indices.begin(), group.indices.end());
  const at::Tensor places = at::tensor(indices, at::kLong).to(all.device());
  all.index_copy_(0, places, at::stack(sums).to(all.scalar_type()));
  shards_->group().all_reduce(all);
  return all.index_select(0, places).to(sums[0].scalar_type()).unbind();
}

Optimizer::Group Optimizer::Group::only(const std::function<bool(std::size_t index)>& wanted) const {
  Group out = *this;
  for (auto* list : {&out.parameters, &out.gradients}) list->clear();
  out.indices.clear();
  out.moments.assign(moments.size(), {});
  for (std::size_t i = 0; i < indices.size(); ++i) {
    if (!wanted(indices[i])) continue;
    out.indices.push_back(indices[i]);
    out.parameters.push_back(parameters[i]);
    out.gradients.push_back(gradients[i]);
    for (std::size_t k = 0; k < moments.size(); ++k) out.moments[k].push_back(moments[k][i]);
  }
  return out;
}

void Optimizer::Group::drop_skipped_gradients() {
  if (!found_inf) return;
  for (at::Tensor& gradient : gradients) gradient = at::where(*found_inf != 0, 0.0, gradient);
}

at::Tensor Optimizer::Group::made() const {
  return found_inf ? 1 - found_inf->to(at::kDouble) : at::ones_like(count);
}

void Optimizer::Group::decay_weights() const {
  if (weight_decay == 0) return;
  at::_foreach_mul_(parameters, (1 - learning_rate * weight_decay * made()).to(parameters[0].options()));
}

// Updates a few parameters at a time, so that the moments in the parameters' type take no more memory than those of the largest parameter.
// An update that sums over ranks is made at once, because all ranks must make equally many.
void Optimizer::update_and_round(const Group& group) {
  std::int64_t most = 0;
  for (const at::Tensor& parameter : group.parameters)
    most = shards_ && uses_whole_sums() ? most + parameter.numel() : std::max(most, parameter.numel());
  std::size_t begin = 0, end = 0;
  do {
    for (std::int64_t elements = 0; end < group.indices.size() && elements + group.parameters[end].numel() <= most; ++end)
      elements += group.parameters[end].numel();
    std::vector<Group> piece{
        group.only([&](std::size_t index) { return begin < end && group.indices[begin] <= index && index <= group.indices[end - 1]; })};
    const std::vector<std::vector<at::Tensor>> stored = piece[0].moments;
    for (std::vector<at::Tensor>& moment : piece[0].moments)
      for (std::size_t i = 0; i < moment.size(); ++i)
        if (moment[i].defined()) moment[i] = moment[i].to(piece[0].parameters[i].scalar_type());
    update(piece);
    for (std::size_t k = 0; k < stored.size(); ++k)
      for (std::size_t i = 0; i < stored[k].size(); ++i)
        if (stored[k][i].defined())
          round_stochastically(piece[0].moments[k][i], stored[k][i],
                               derive_seed(*rounding_, Purpose::moments, {static_cast<std::uint64_t>(steps_), piece[0].indices[i], k}),
                               shards_ ? shards_->own(piece[0].indices[i])->begin : 0);
    begin = end;
  } while (begin < group.indices.size());
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
  if (rounding_)
    for (const Group& group : with_gradient) update_and_round(group);
  else
    update(with_gradient);
  if (inputs.found_inf.defined()) {
    if (!missed_.defined()) missed_ = at::zeros_like(inputs.found_inf, inputs.found_inf.options().dtype(at::kDouble));
    missed_.add_(inputs.found_inf);
  }
  if (shards_) shards_->distribute();
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
  // A rank writes copies of whole parameters only.
  after_update(shards_ ? std::vector<std::size_t>() : updated_);
}

bool Optimizer::can_be_recorded() const {
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    if (frozen(i) || (!parameters_[i].tensor.is_cpu() && !uses_device_numbers())) return false;
  // Skipped updates may keep a parameter frozen for longer than the host knows.
  return !shards_ && !rounding_ && std::none_of(parameters_.begin(), parameters_.end(), [](const NamedParameter& each) { return each.frozen_steps > 0; });
}

void Optimizer::take_back(std::int64_t count) {
  steps_ -= count;
  if (missed_.defined()) missed_.sub_(static_cast<double>(count));
}

void Optimizer::zero_grad() {
  for (NamedParameter& parameter : parameters_) parameter.tensor.mutable_grad().reset();
  if (gradients_) gradients_->own.assign(parameters_.size(), {});
  moments();
}

std::map<std::string, at::Tensor> Optimizer::state() const {
  std::map<std::string, at::Tensor> out{{"step", at::scalar_tensor(steps_, at::kLong)}};
  for (std::size_t k = 0; k < moments().size(); ++k)
    for (std::size_t i = 0; i < parameters_.size(); ++i)
      if (moments()[k][i].defined() && (!shards_ || shards_->own(i))) out[moment_name(k, i)] = moments()[k][i];
  return out;
}

std::map<std::string, at::Tensor> Optimizer::gather_state() const {
  if (!shards_) return state();
  std::map<std::string, at::Tensor> out{{"step", at::scalar_tensor(steps_, at::kLong)}};
  for (std::size_t k = 0; k < moments().size(); ++k) {
    const std::vector<at::Tensor> whole = shards_->gather(moments()[k]);
    for (std::size_t i = 0; i < whole.size(); ++i)
      if (whole[i].defined()) out[moment_name(k, i)] = whole[i];
  }
  if (!shards_->group().first()) out.clear();
  return out;
}

StatePart Optimizer::part() const {
  TORCH_CHECK(shards_, "optimizer: only a sharded state has parts");
  StatePart out;
  std::map<std::string, at::Tensor> elements;
  for (std::size_t k = 0; k < moments().size(); ++k)
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      const std::optional<Piece>& piece = shards_->own(i);
      if (!moments()[k][i].defined() || !piece) continue;
      const at::Tensor& whole = parameters_[i].tensor;
      const std::string name = moment_name(k, i);
      out.places[name] = {whole.sizes().vec(), whole.strides().vec(), piece->begin, piece->end};
      elements[name] = elements_of(moments()[k][i]);
    }
  out.read = [elements] { return elements; };
  return out;
}

std::int64_t Optimizer::state_bytes() const {
  std::int64_t bytes = 0;
  for (const std::vector<at::Tensor>& moment : moments_)
    for (std::size_t i = 0; i < moment.size(); ++i)
      if (moment[i].defined()) bytes += parameters_[i].tensor.numel() * static_cast<std::int64_t>(moment[i].element_size());
  return bytes;
}

void Optimizer::load_state(const std::map<std::string, at::Tensor>& state, const std::string& origin) {
  const auto step = state.find("step");
  if (step == state.end()) user_error(origin, ": the optimizer's state lacks step");
  if (step->second.numel() != 1) user_error(origin, ": the optimizer's step has shape ", step->second.sizes(), ", expected []");
  StatePart all;
  for (const auto& [name, tensor] : state)
    if (name != "step") all.places[name] = {tensor.sizes().vec(), at::empty(tensor.sizes(), at::kMeta).strides().vec(), 0, tensor.numel()};
  all.read = [&state] {
    std::map<std::string, at::Tensor> out;
    for (const auto& [name, tensor] : state) out[name] = tensor.flatten();
    return out;
  };
  load_state({all}, step->second.item<std::int64_t>(), origin);
}

/// A moment that load_state() looks for in the parts.
struct Optimizer::WantedMoment {
  std::size_t moment = 0, index = 0;
  std::int64_t found = -1;  // elements in the parts; -1 before the first one
  at::Tensor whole;         // in the parts' order of elements, if that is not the parameter's
};

// Returns the moments by their names, after it has checked that the parts hold all of their elements and nothing else.
Optimizer::WantedMoments Optimizer::wanted_of(const std::vector<StatePart>& parts, const std::string& origin) const {
  WantedMoments out;
  for (std::size_t k = 0; k < moments().size(); ++k)
    for (std::size_t i = 0; i < parameters_.size(); ++i)
      if (moments()[k][i].defined()) out[moment_name(k, i)] = {.moment = k, .index = i};
  for (const StatePart& part : parts)
    for (const auto& [name, place] : part.places) {
      const auto wanted = out.find(name);
      if (wanted == out.end()) user_error(origin, ": the optimizer's state holds ", name, ", which no parameter here has");
      const at::IntArrayRef expected = parameters_[wanted->second.index].tensor.sizes();
      if (expected != at::IntArrayRef(place.sizes))
        user_error(origin, ": the optimizer's ", name, " has shape ", at::IntArrayRef(place.sizes), ", expected ", expected);
      wanted->second.found = std::max<std::int64_t>(wanted->second.found, 0) + place.end - place.begin;
    }
  for (const auto& [name, wanted] : out)
    if (wanted.found != parameters_[wanted.index].tensor.numel())
      user_error(origin, ": the optimizer's state lacks ", wanted.found > 0 ? "elements of " : "", name);
  return out;
}

// Returns the elements of the place that this rank keeps. Of a tensor in another order, these are only known once it is whole.
Piece Optimizer::needed(std::size_t index, const StatePart::Place& place) const {
  const at::Tensor& parameter = parameters_[index].tensor;
  const Piece own = !shards_ ? Piece{index, 0, parameter.numel()} : shards_->own(index).value_or(Piece{index, 0, 0});
  if (at::IntArrayRef(place.strides) != parameter.strides())
    return own.begin < own.end ? Piece{index, place.begin, place.end} : Piece{index, 0, 0};
  const std::int64_t begin = std::max(place.begin, own.begin);
  return {index, begin, std::max(begin, std::min(place.end, own.end))};
}

// Reads a part if this rank keeps any of its elements.
void Optimizer::load_part(const StatePart& part, WantedMoments& wanted, const std::string& origin) {
  std::map<std::string, at::Tensor> tensors;
  for (const auto& [name, place] : part.places) {
    WantedMoment& moment = wanted.at(name);
    const Piece piece = needed(moment.index, place);
    if (piece.begin == piece.end) continue;
    if (tensors.empty()) tensors = part.read();
    const auto found = tensors.find(name);
    if (found == tensors.end() || found->second.numel() != place.end - place.begin)
      user_error(origin, ": damaged: the elements of the optimizer's ", name, " are not those that its description names");
    at::Tensor to;
    if (at::IntArrayRef(place.strides) == parameters_[moment.index].tensor.strides()) {
      const std::int64_t first = shards_ ? shards_->own(moment.index)->begin : 0;
      to = elements_of(moments()[moment.moment][moment.index]).slice(0, piece.begin - first, piece.end - first);
    } else {
      if (!moment.whole.defined()) moment.whole = at::empty_strided(place.sizes, place.strides, found->second.options());
      to = elements_of(moment.whole).slice(0, piece.begin, piece.end);
    }
    to.copy_(found->second.slice(0, piece.begin - place.begin, piece.end - place.begin));
  }
}

void Optimizer::load_state(const std::vector<StatePart>& parts, std::int64_t step, const std::string& origin) {
  const c10::NoGradGuard no_grad;
  WantedMoments wanted = wanted_of(parts, origin);
  for (const StatePart& part : parts) load_part(part, wanted, origin);
  for (const auto& [name, moment] : wanted)
    if (moment.whole.defined())
      moments()[moment.moment][moment.index].copy_(
          own_part(moment.index, at::empty_like(parameters_[moment.index].tensor, moment.whole.options()).copy_(moment.whole)));
  steps_ = step;
  if (missed_.defined()) missed_.zero_();
}

}  // namespace tessera
