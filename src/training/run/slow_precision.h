#pragma once

#include <optional>
#include <string>

#include <c10/core/Device.h>

namespace tessera {

/// Returns a warning about a precision in which matrix products take `times_float32` times as long as in float32; nothing if they
/// are not notably slower.
std::optional<std::string> slow_precision_text(const std::string& precision, double times_float32);

/// Measures how long the CPU takes for matrix products in `precision` and in float32, and returns slow_precision_text() for the result. The
/// measured products take a few milliseconds. On a GPU or for float32, measures and returns nothing.
std::optional<std::string> slow_precision(const at::Device& device, const std::string& precision);

}  // namespace tessera
