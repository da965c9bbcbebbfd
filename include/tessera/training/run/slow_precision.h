#pragma once

#include <optional>
#include <string>

#include <c10/core/Device.h>

namespace tessera {

/// What to say of matrix products that take so many times as long in a precision as in float32; nothing when they are
/// not notably slower.
std::optional<std::string> slow_precision_text(const std::string& precision, double times_float32);

/// The same for this machine, by products of some milliseconds: a warning for a CPU that has no units for
/// training.precision. On a GPU, and of float32, there is nothing to say.
std::optional<std::string> slow_precision(const at::Device& device, const std::string& precision);

}  // namespace tessera
