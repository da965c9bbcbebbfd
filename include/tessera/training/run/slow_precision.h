#pragma once

#include <optional>
#include <string>

#include <c10/core/Device.h>

namespace tessera {

/// Returns a warning if matrix products in a precision take `times_float32` times as long as in float32; nothing if they are not
/// notably slower.
std::optional<std::string> slow_precision_text(const std::string& precision, double times_float32);

/// The same for this machine, measured with products that take a few milliseconds: a warning for a CPU without hardware support for
/// training.precision. Returns nothing on a GPU and for float32.
std::optional<std::string> slow_precision(const at::Device& device, const std::string& precision);

}  // namespace tessera
