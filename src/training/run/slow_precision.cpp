#include "src/measure/machine.h"
#include "src/training/run/slow_precision.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>

namespace tessera {
namespace {

constexpr double kNotablySlower = 1.2;

double product_seconds(at::ScalarType type) {
  constexpr std::int64_t kSide = 256;
  constexpr int kRepeats = 5;
  constexpr double kBudget = 0.02;
  const at::Device cpu = at::kCPU;
  const auto product = square_product(cpu, type, kSide);
  product();  // warm-up: starts threads and chooses an algorithm
  return median_seconds(cpu, product, kRepeats, kBudget);
}

}  // namespace

std::optional<std::string> slow_precision_text(const std::string& precision, double times_float32) {
  if (times_float32 < kNotablySlower) return std::nullopt;
  return concat("training.precision is ", precision, ", and matrix products take ", fixed(times_float32, times_float32 < 10 ? 1 : 0),
                " times as long as in float32 on this CPU: set it to float32");
}

std::optional<std::string> slow_precision(const at::Device& device, const std::string& precision) {
  if (!device.is_cpu() || precision == "float32") return std::nullopt;
  const double seconds = product_seconds(precision == "fp16" ? at::kHalf : at::kBFloat16);
  return slow_precision_text(precision, seconds / product_seconds(at::kFloat));
}

}  // namespace tessera
