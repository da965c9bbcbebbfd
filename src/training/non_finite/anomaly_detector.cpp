#include "src/training/non_finite/anomaly_detector.h"

#include <mutex>
#include <string_view>

#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <c10/core/GradMode.h>

#include <tessera/base/error.h>

namespace tessera {
namespace {

struct Counts {
  std::int64_t nan = 0, infinite = 0, all = 0;
};

bool worth_a_look(const at::Tensor& tensor) {
  return tensor.defined() && tensor.is_floating_point() && tensor.numel() > 0 && tensor.layout() == at::kStrided &&
         !tensor.is_meta() && tensor.has_storage();
}

Counts count(const at::Tensor& tensor) {
  const at::Tensor plain = tensor.detach();
  return {at::isnan(plain).sum().item<std::int64_t>(), at::isinf(plain).sum().item<std::int64_t>(), plain.numel()};
}

// Returns true for operators whose non-finite outputs are no sign of an error. Such outputs are uninitialized memory, or values that the
// program asked for, such as an infinity in a mask.
bool makes_what_it_is_told(std::string_view name) {
  for (const std::string_view part : {"empty", "resize", "set_", "fill", "full", "scalar_tensor", "where", "copy_"})
    if (name.find(part) != std::string_view::npos) return true;
  return false;
}

template <class Body>
void for_each_tensor(const c10::IValue& value, Body&& body) {
  if (value.isTensor()) {
    body(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) body(tensor);
  }
}

}  // namespace

struct AnomalyDetector::Impl {
  std::mutex mutex;
  std::map<const void*, std::string> names;
  std::string place;  // the parameter that was used most recently
  std::string first_infinite, first_nan;
  at::CallbackHandle handle = 0;

  void look(const at::RecordFunction& call, bool nan_before, bool infinite_before);
};

namespace {

// The active detector; there is at most one at a time.
AnomalyDetector::Impl* watching = nullptr;
// True while the detector runs its own operators, which must not be checked.
thread_local bool testing = false;
thread_local std::string backward_of;  // name of the autograd node that this thread is running; empty outside a backward pass

struct Testing {
  Testing() { testing = true; }
  ~Testing() { testing = false; }
  const c10::NoGradGuard no_grad;
};

struct Before : at::ObserverContext {
  bool backward_node = false;
  bool nan = false, infinite = false;
  std::string outer;
};

std::unique_ptr<at::ObserverContext> on_start(const at::RecordFunction& call) {
  if (testing || watching == nullptr) return nullptr;
  auto before = std::make_unique<Before>();
  if (call.scope() == at::RecordScope::BACKWARD_FUNCTION) {
    before->backward_node = true;
    before->outer = std::exchange(backward_of, call.name());
    return before;
  }
  const Testing guard;
  for (const c10::IValue& input : call.inputs())
    for_each_tensor(input, [&](const at::Tensor& tensor) {
      if (!worth_a_look(tensor)) return;
      {
        const std::lock_guard lock(watching->mutex);
        const auto found = watching->names.find(tensor.const_data_ptr());
        if (found != watching->names.end()) watching->place = found->second;
      }
      const Counts counts = count(tensor);
      before->nan |= counts.nan > 0;
      before->infinite |= counts.infinite > 0;
    });
  return before;
}

void on_end(const at::RecordFunction& call, at::ObserverContext* context) {
  auto* before = static_cast<Before*>(context);
  if (before == nullptr) return;
  if (before->backward_node) {
    backward_of = before->outer;
    return;
  }
  if (testing || watching == nullptr || makes_what_it_is_told(call.name())) return;
  const Testing guard;
  watching->look(call, before->nan, before->infinite);
}

}  // namespace

void AnomalyDetector::Impl::look(const at::RecordFunction& call, bool nan_before, bool infinite_before) {
  for (const c10::IValue& output : call.outputs())
    for_each_tensor(output, [&](const at::Tensor& tensor) {
      if (!worth_a_look(tensor)) return;
      const Counts counts = count(tensor);
      const std::lock_guard lock(mutex);
      const auto note = [&](std::string& first, std::int64_t bad, const char* what) {
        if (bad == 0 || !first.empty()) return;
        first = concat(call.name(), " gave ", what, " (", bad, " of ", counts.all, " values, ", tensor.sizes(), " ",
                       c10::toString(tensor.scalar_type()), ") in the ",
                       backward_of.empty() ? std::string("forward pass") : "backward pass (" + backward_of + ")",
                       place.empty() ? "" : ", after " + place);
      };
      if (!nan_before) note(first_nan, counts.nan, "NaN");
      if (!nan_before && !infinite_before && first_nan.empty()) note(first_infinite, counts.infinite, "infinity");
    });
}

AnomalyDetector::AnomalyDetector(const std::map<std::string, at::Tensor>& names) : impl_(std::make_unique<Impl>()) {
  for (const auto& [name, tensor] : names) impl_->names.emplace(tensor.const_data_ptr(), name);
  watching = impl_.get();
  impl_->handle = at::addGlobalCallback(at::RecordFunctionCallback(on_start, on_end)
                                            .needsInputs(true)
                                            .needsOutputs(true)
                                            .scopes({at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION}));
}

AnomalyDetector::~AnomalyDetector() {
  at::removeCallback(impl_->handle);
  watching = nullptr;
}

std::string AnomalyDetector::report() const {
  const std::lock_guard lock(impl_->mutex);
  const std::string between = impl_->first_infinite.empty() || impl_->first_nan.empty() ? "" : "; ";
  return impl_->first_infinite + between + impl_->first_nan;
}

}  // namespace tessera
