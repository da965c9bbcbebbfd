#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

namespace tessera {

/// The number format in which matrix products are computed.
enum class Arithmetic { float32, tf32, bfloat16, float16 };

/// The floating-point operations per second that a device can reach in matrix products, and where this number comes from.
struct PeakFlops {
  double flops = 0;
  std::string origin;  // where the number comes from, such as "NVIDIA L4's data sheet, bf16"
  bool measured = false;
};

/// Returns the dense TFLOP/s (without sparsity) that NVIDIA's data sheet states for a GPU. `gpu` is the name that the driver reports, such
/// as "NVIDIA A100-SXM4-80GB". Returns nothing for unknown GPUs, for MIG instances, and for bfloat16 if the GPU has no units for it.
std::optional<double> known_peak_tflops(std::string_view gpu, Arithmetic arithmetic);

/// Returns the data sheet's number if there is one. Otherwise measures several large matrix products for some tenths of a second and
/// returns the rate of the fastest one. On a CPU, also measures float32 and returns the higher of the two rates, because many CPUs have no
/// units for half precision. On a machine that is busy during the measurement, the number is too low.
PeakFlops peak_flops(const at::Device& device, Arithmetic arithmetic);

}  // namespace tessera
