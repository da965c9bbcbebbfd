#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

namespace tessera {

/// How a GPU's matrix products are computed.
enum class Arithmetic { float32, tf32, bfloat16, float16 };

/// The floating-point operations per second that a device could reach in matrix products, and where the number is from.
struct PeakFlops {
  double flops = 0;
  std::string origin;  // "NVIDIA L4's data sheet, bf16"
  bool measured = false;
};

/// Dense (no sparsity) TFLOP/s by NVIDIA's data sheets of a GPU as its driver names it ("NVIDIA A100-SXM4-80GB");
/// nothing for others, for parts of one (MIG), and for bfloat16 where the GPU has no units for it.
std::optional<double> known_peak_tflops(std::string_view gpu, Arithmetic arithmetic);

/// The data sheet's number where there is one; otherwise what the fastest of several large matrix products reaches
/// here, measured in some tenths of a second. On a CPU the better of that type and float32: many have no units for half
/// precision. A machine that is busy all that time gives less than it could.
PeakFlops peak_flops(const at::Device& device, Arithmetic arithmetic);

}  // namespace tessera
