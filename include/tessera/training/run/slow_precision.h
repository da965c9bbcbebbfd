#pragma once

#include <optional>
#include <string>

#include <c10/core/Device.h>

namespace tessera {

/// Returns a warning about a precision in which matrix products take `times_float32` times as long as in float32; nothing if they
/// are not notably slower.
std::optional<std::string> slow_precision_text(const std::string& precision, double times_float32);

/// Returns the warning of slow_precision_text() if this machine's CPU has no hardware support for `precision`. Measures the speed with
/// products that take a few milliseconds. Returns nothing on a GPU or for float32.
std::optional<std::string> slow_precision(const at::Device& device, const std::string& precision);

}  // namespace tessera
