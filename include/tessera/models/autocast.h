#pragma once

#include <optional>
#include <string>

#include <ATen/autocast_mode.h>

#include <tessera/ops/numeric.h>

namespace tessera {

/// Enables autocast to a low precision for one scope; the weights' low-precision copies are cached until its end.
class Autocast {
 public:
  explicit Autocast(at::DeviceType device, at::ScalarType precision = at::kBFloat16) : device_(device) {
    at::autocast::set_autocast_dtype(device_, precision);
    at::autocast::set_autocast_enabled(device_, true);
    at::autocast::increment_nesting();
  }
  ~Autocast() {
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(device_, false);
  }
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  at::DeviceType device_;
};

/// Applies a setting such as training.precision for one scope: autocast for bf16 and fp16, no autocast for float32.
class PrecisionScope {
 public:
  PrecisionScope(const at::Device& device, const std::string& precision) {
    if (precision == "float32")
      no_autocast_.emplace();
    else
      autocast_.emplace(device.type(), precision == "bf16" ? at::kBFloat16 : at::kHalf);
  }

 private:
  std::optional<Autocast> autocast_;
  std::optional<NoAutocast> no_autocast_;
};

}  // namespace tessera
