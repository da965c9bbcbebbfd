#pragma once

#include <optional>
#include <string>

#include <ATen/core/Tensor.h>

#include <tessera/models/autocast.h>

namespace tessera {

/// Applies training.precision as autocast during its lifetime.
class TowerPrecision {
 public:
  TowerPrecision(const at::Device& device, const std::string& precision) {
    if (precision == "bf16") autocast_.emplace(device.type(), at::kBFloat16);
    if (precision == "fp16") autocast_.emplace(device.type(), at::kHalf);
  }

 private:
  std::optional<Autocast> autocast_;
};

}  // namespace tessera
