#pragma once

#include <optional>
#include <string>

#include <ATen/autocast_mode.h>

#include "src/ops/weight_copies.h"
#include <tessera/ops/numeric.h>

namespace tessera {

/// Enables autocast to a low precision for one scope. Low-precision copies of the weights are cached until the scope ends.
class Autocast {
 public:
  explicit Autocast(at::DeviceType device, at::ScalarType precision = at::kBFloat16) : device_(device) {
    at::autocast::set_autocast_dtype(device_, precision);
    at::autocast::set_autocast_enabled(device_, true);
    at::autocast::increment_nesting();
  }
  ~Autocast() {
    if (at::autocast::decrement_nesting() == 0) {
      at::autocast::clear_cache();
      WeightCopies::forget_casts();
    }
    at::autocast::set_autocast_enabled(device_, false);
  }
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  at::DeviceType device_;
};

/// Returns the type to which autocast casts tensors on this tensor's device; nothing if autocast is off.
inline std::optional<at::ScalarType> autocast_type(const at::Tensor& tensor) {
  const at::DeviceType device = tensor.device().type();
  if ((device != at::kCPU && device != at::kCUDA) || !at::autocast::is_autocast_enabled(device)) return std::nullopt;
  return at::autocast::get_autocast_dtype(device);
}

/// Returns a parameter as autocast passes it to a matrix product: in autocast's type, or unchanged if autocast is off.
inline at::Tensor autocast_copy(const at::Tensor& parameter) {
  const auto type = autocast_type(parameter);
  if (type == at::kBFloat16)
    if (const at::Tensor cast = WeightCopies::cast(parameter); cast.defined()) return cast;
  return type ? at::autocast::cached_cast(*type, parameter, parameter.device().type()) : parameter;
}

/// Sets the precision for one scope: autocast for bfloat16 and float16, no autocast for float32.
class PrecisionScope {
 public:
  PrecisionScope(const at::Device& device, at::ScalarType type) {
    if (type == at::kFloat)
      no_autocast_.emplace();
    else
      autocast_.emplace(device.type(), type);
  }
  /// `precision` is the value of a setting such as training.precision: float32, bf16 or fp16.
  PrecisionScope(const at::Device& device, const std::string& precision)
      : PrecisionScope(device, precision == "bf16" ? at::kBFloat16 : precision == "fp16" ? at::kHalf : at::kFloat) {}

 private:
  std::optional<Autocast> autocast_;
  std::optional<NoAutocast> no_autocast_;
};

}  // namespace tessera
