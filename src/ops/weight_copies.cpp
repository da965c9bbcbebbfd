#include "src/ops/weight_copies.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/custom_function.h>

namespace tessera {
namespace {
namespace weight_copies_parts {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

thread_local WeightCopies* current = nullptr;

// A cast whose result is there already.
class MadeCast : public torch::autograd::Function<MadeCast> {
 public:
  static at::Tensor forward(AutogradContext* /*ctx*/, const at::Tensor& /*parameter*/, const at::Tensor& copy) {
    return copy.variable_data();  // the same memory, as a tensor without a history
  }
  static variable_list backward(AutogradContext* /*ctx*/, const variable_list& gradients) { return {gradients[0].to(at::kFloat), {}}; }
};

}  // namespace weight_copies_parts
}  // namespace

WeightCopies::Scope::Scope(WeightCopies* copies) : outer_(weight_copies_parts::current) {
  weight_copies_parts::current = copies;
}

WeightCopies::Scope::~Scope() {
  forget_casts();
  weight_copies_parts::current = outer_;
}

at::Tensor WeightCopies::cast(const at::Tensor& parameter) {
  using namespace weight_copies_parts;
  const bool trained = parameter.scalar_type() == at::kFloat && parameter.is_leaf() && parameter.requires_grad() && !parameter.is_view();
  if (current == nullptr || !trained || !at::GradMode::is_enabled()) return {};
  auto [found, fresh] = current->entries_.try_emplace(parameter.unsafeGetTensorImpl());
  Entry& entry = found->second;
  if (fresh) entry = {parameter, at::empty_like(parameter, at::kBFloat16), -1, !current->complete_, {}};
  if (entry.version != parameter._version()) {
    const at::NoGradGuard no_grad;
    entry.copy.copy_(parameter);
    entry.version = parameter._version();
  }
  if (entry.cast.defined()) return entry.cast;
  const at::Tensor made = MadeCast::apply(parameter, entry.copy);
  if (at::autocast::is_autocast_cache_enabled()) entry.cast = made;
  return made;
}

void WeightCopies::forget_casts() {
  if (weight_copies_parts::current == nullptr) return;
  for (auto& [key, entry] : weight_copies_parts::current->entries_) entry.cast.reset();
}

void WeightCopies::refresh() {
  const at::NoGradGuard no_grad;
  for (auto& [key, entry] : entries_) {
    if (entry.version == entry.parameter._version()) continue;
    entry.copy.copy_(entry.parameter);
    entry.version = entry.parameter._version();
  }
}

at::Tensor WeightCopies::written_by_updates(const at::Tensor& parameter) {
  complete_ = true;
  const auto found = entries_.find(parameter.unsafeGetTensorImpl());
  return found != entries_.end() && found->second.by_updates ? found->second.copy : at::Tensor();
}

void WeightCopies::mark_written(const at::Tensor& parameter) {
  const auto found = entries_.find(parameter.unsafeGetTensorImpl());
  if (found != entries_.end() && found->second.by_updates) found->second.version = parameter._version();
}

}  // namespace tessera
