#include "src/training/non_finite/anomaly_detector.h"

#include <mutex>
#include <string_view>

#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <c10/core/GradMode.h>

#include <tessera/base/error.h>

namespace tessera {

struct AnomalyDetector::Impl {
  std::mutex mutex;
  std::map<const void*, std::string> names;
  std::string place;  // the parameter that was used most recently
  std::string first_infinite, first_nan;
  at::CallbackHandle handle = 0;
};

namespace {

// The active detector; there is at most one at a time.
AnomalyDetector::Impl* watching = nullptr;
// True while the detector runs its own operators, which must not be checked.
thread_local bool testing = false;
thread_local std::string backward_of;  // name of the autograd node that this thread is running; empty outside a backward pass

// What on_end() must know about the time before an operator or autograd node.
struct Before : at::ObserverContext {
  bool nan = false, infinite = false;
  std::string outer;
};

// Returns true for operators whose non-finite outputs are no sign of an error. Such outputs are uninitialized memory, or values that the
// program asked for, such as an infinity in a mask.
bool may_give_anything(std::string_view name) {
  for (const std::string_view part : {"empty", "resize", "set_", "fill", "full", "scalar_tensor", "where", "copy_"})
    if (name.find(part) != std::string_view::npos) return true;
  return false;
}

// Calls body(tensor, number of NaNs, number of infinities) for each tensor of numbers among the values.
template <class Values, class Body>
void count_bad(const Values& values, Body&& body) {
  const c10::NoGradGuard no_grad;
  const std::lock_guard lock(watching->mutex);
  testing = true;
  for (const c10::IValue& value : values)
    for (const at::Tensor& tensor : value.isTensor()       ? std::vector<at::Tensor>{value.toTensor()}
                                    : value.isTensorList() ? value.toTensorVector()
                                                           : std::vector<at::Tensor>{}) {
      if (!tensor.defined() || !tensor.is_floating_point() || tensor.numel() == 0 || tensor.layout() != at::kStrided ||
          tensor.is_meta() || !tensor.has_storage())
        continue;
      const at::Tensor plain = tensor.detach();
      body(tensor, at::isnan(plain).sum().item<std::int64_t>(), at::isinf(plain).sum().item<std::int64_t>());
    }
  testing = false;
}

std::unique_ptr<at::ObserverContext> on_start(const at::RecordFunction& call) {
  if (testing || watching == nullptr) return nullptr;
  auto before = std::make_unique<Before>();
  if (call.scope() == at::RecordScope::BACKWARD_FUNCTION) {
    before->outer = std::exchange(backward_of, call.name());
    return before;
  }
  count_bad(call.inputs(), [&](const at::Tensor& tensor, std::int64_t nan, std::int64_t infinite) {
    const auto found = watching->names.find(tensor.const_data_ptr());
    if (found != watching->names.end()) watching->place = found->second;
    before->nan |= nan > 0;
    before->infinite |= infinite > 0;
  });
  return before;
}

void on_end(const at::RecordFunction& call, at::ObserverContext* context) {
  const auto* before = static_cast<Before*>(context);
  if (before == nullptr) return;
  if (call.scope() == at::RecordScope::BACKWARD_FUNCTION) {
    backward_of = before->outer;
    return;
  }
  if (testing || watching == nullptr || may_give_anything(call.name())) return;
  count_bad(call.outputs(), [&](const at::Tensor& tensor, std::int64_t nan, std::int64_t infinite) {
    const auto note = [&](std::string& first, std::int64_t bad, const char* what) {
      if (bad == 0 || !first.empty()) return;
      first = concat(call.name(), " gave ", what, " (", bad, " of ", tensor.numel(), " values, ", tensor.sizes(), " ",
                     c10::toString(tensor.scalar_type()), ") in the ",
                     backward_of.empty() ? std::string("forward pass") : "backward pass (" + backward_of + ")",
                     watching->place.empty() ? "" : ", after " + watching->place);
    };
    if (!before->nan) note(watching->first_nan, nan, "NaN");
    if (!before->nan && !before->infinite && watching->first_nan.empty()) note(watching->first_infinite, infinite, "infinity");
  });
}

}  // namespace

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
