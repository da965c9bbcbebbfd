#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

namespace tessera {

/// The arithmetic of matrix products.
enum class Arithmetic { float32, tf32, bfloat16, float16 };

/// The floating-point operations per second that a device can reach in matrix products, and the origin of the number.
struct PeakFlops {
  double flops = 0;
  std::string origin;  // "NVIDIA L4's data sheet, bf16"
  bool measured = false;
};

/// Returns the dense TFLOP/s (without sparsity) in NVIDIA's data sheets for a GPU by its driver's name ("NVIDIA A100-SXM4-80GB").
/// Returns nothing for unknown GPUs, for MIG instances, and for bfloat16 if the GPU has no units for it.
std::optional<double> known_peak_tflops(std::string_view gpu, Arithmetic arithmetic);

/// Returns the data sheet's number if there is one; otherwise the rate of the fastest of several large matrix products, measured
/// in some tenths of a second. On a CPU it is the better of this type and float32, because many CPUs have no units for half
/// precision. On a machine that is busy during the measurement, the number is too low.
PeakFlops peak_flops(const at::Device& device, Arithmetic arithmetic);

}  // namespace tessera
