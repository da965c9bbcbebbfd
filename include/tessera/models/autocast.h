#pragma once

#include <ATen/autocast_mode.h>

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

}  // namespace tessera
