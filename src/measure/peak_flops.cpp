#include "src/measure/peak_flops.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <limits>

#include "src/measure/machine.h"
#include <tessera/base/error.h>

namespace tessera {
namespace {

struct Gpu {
  std::string_view name;
  double float16, tf32, float32;  // dense TFLOP/s; tf32 equals float32 on GPUs without tf32 units
  bool bfloat16 = true;
};

// The numbers come from NVIDIA's data sheets. Where a sheet states numbers "with sparsity", they are halved. The numbers of GeForce cards
// are for float32 accumulation. If one name is a prefix of another, the longer name comes first.
constexpr std::array kGpus = {
    Gpu{"GB200", 2500, 1250, 80},
    Gpu{"B200", 2250, 1125, 75},
    Gpu{"GH200", 989.4, 494.7, 66.9},
    Gpu{"H200 NVL", 835.5, 417.5, 60},
    Gpu{"H200", 989.4, 494.7, 66.9},
    Gpu{"H100 PCIe", 756, 378, 51},
    Gpu{"H100 NVL", 835.5, 417.5, 60},
    Gpu{"H100", 989.4, 494.7, 66.9},
    Gpu{"H800", 989.4, 494.7, 66.9},
    Gpu{"H20", 148, 74, 44},
    Gpu{"A100", 312, 156, 19.5},
    Gpu{"A800", 312, 156, 19.5},
    Gpu{"A40", 149.7, 74.8, 37.4},
    Gpu{"A30", 165, 82, 10.3},
    Gpu{"A10G", 70, 35, 31.5},
    Gpu{"A10", 125, 62.5, 31.2},
    Gpu{"L40S", 362, 183, 91.6},
    Gpu{"L40", 181, 90.5, 90.5},
    Gpu{"L4", 121, 60, 30.3},
    Gpu{"RTX 6000 Ada", 364.2, 182.1, 91.1},
    Gpu{"RTX A6000", 154.8, 77.4, 38.7},
    Gpu{"RTX A5000", 111.1, 55.6, 27.8},
    Gpu{"RTX 5090", 209.5, 104.8, 104.8},
    Gpu{"RTX 4090", 165.2, 82.6, 82.6},
    Gpu{"RTX 3090", 71, 35.6, 35.6},
    Gpu{"V100-PCIE", 112, 14, 14, false},
    Gpu{"V100", 125, 15.7, 15.7, false},
    Gpu{"T4", 65, 8.1, 8.1, false},
};

// Whether `name` occurs in `text` as whole words: "A10" does not occur in "A100" or "A10G".
bool has_words(std::string_view text, std::string_view name) {
  const auto inside_word = [&](std::size_t at) {
    return at < text.size() && std::isalnum(static_cast<unsigned char>(text[at])) != 0;
  };
  for (std::size_t at = text.find(name); at != std::string_view::npos; at = text.find(name, at + 1))
    if ((at == 0 || !inside_word(at - 1)) && !inside_word(at + name.size())) return true;
  return false;
}

const char* name_of(Arithmetic arithmetic) {
  if (arithmetic == Arithmetic::float32) return "float32";
  if (arithmetic == Arithmetic::tf32) return "TF32";
  if (arithmetic == Arithmetic::bfloat16) return "bf16";
  if (arithmetic == Arithmetic::float16) return "fp16";
  return "";
}

at::ScalarType type_of(Arithmetic arithmetic) {
  if (arithmetic == Arithmetic::bfloat16) return at::kBFloat16;
  if (arithmetic == Arithmetic::float16) return at::kHalf;
  return at::kFloat;
}

// Repeats a product and returns the highest rate. Other programs can only make a product slower, never faster. Measuring therefore ends
// when several products in a row have not been faster than the fastest so far.
double fastest_product(const at::Device& device, at::ScalarType type, std::int64_t side) {
  constexpr double kBudget = 0.5;  // seconds
  constexpr int kEnough = 8;
  const std::function<void()> product = square_product(device, type, side);
  seconds_of(device, product);  // warm-up: starts threads and chooses an algorithm
  double fastest = std::numeric_limits<double>::infinity(), spent = 0;
  for (int slower = 0; slower < kEnough && (spent < kBudget || slower < 3); ++slower) {
    const double seconds = seconds_of(device, product);
    spent += seconds;
    if (seconds < fastest) slower = 0;
    fastest = std::min(fastest, seconds);
  }
  return 2.0 * std::pow(static_cast<double>(side), 3) / fastest;
}

}  // namespace

std::optional<double> known_peak_tflops(std::string_view gpu, Arithmetic arithmetic) {
  if (has_words(gpu, "MIG") || has_words(gpu, "Laptop") || has_words(gpu, "Max-Q")) return std::nullopt;
  const auto found =
      std::find_if(kGpus.begin(), kGpus.end(), [&](const Gpu& each) { return has_words(gpu, each.name); });
  if (found == kGpus.end()) return std::nullopt;
  if (arithmetic == Arithmetic::float32) return found->float32;
  if (arithmetic == Arithmetic::tf32) return found->tf32;
  if (arithmetic == Arithmetic::bfloat16) return found->bfloat16 ? std::optional(found->float16) : std::nullopt;
  if (arithmetic == Arithmetic::float16) return found->float16;
  return std::nullopt;
}

PeakFlops peak_flops(const at::Device& device, Arithmetic arithmetic) {
  const std::string machine = machine_name(device);
  if (!device.is_cpu())
    if (const auto known = known_peak_tflops(machine, arithmetic))
      return {*known * 1e12, concat(machine, "'s data sheet, ", name_of(arithmetic)), false};
  const std::int64_t side = device.is_cpu() ? 1024 : 8192;
  double flops = fastest_product(device, type_of(arithmetic), side);
  if (device.is_cpu() && type_of(arithmetic) != at::kFloat)
    flops = std::max(flops, fastest_product(device, at::kFloat, side));
  return {flops, concat("a product of ", side, " x ", side, " matrices on ", machine), true};
}

}  // namespace tessera
