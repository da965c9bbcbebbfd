#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include "src/measure/step_meter.h"

namespace tessera {

/// Returns the device for a value of the option --device, which is auto (the GPU if there is one, else the CPU), cpu, cuda or cuda:N.
/// Throws UserError for any other value, and for a GPU that does not exist.
at::Device parse_device(const std::string& name);

/// Returns a name such as "Intel(R) Xeon(R) ..., 2 threads", or for a GPU the name that its driver reports.
std::string machine_name(const at::Device& device);

/// Returns the number of bytes that could still be allocated: free_memory(), or a GPU's free memory.
std::int64_t available_memory(const at::Device& device);
/// Returns the number of bytes of a device's memory, whether or not they are in use: whole_memory(), or a GPU's memory.
std::int64_t whole_memory(const at::Device& device);

/// Returns the bytes that a GPU's caching allocator has reserved but does not use; 0 on the CPU.
std::int64_t unused_by_allocator(const at::Device& device);

/// Waits until a GPU has finished all its work; does nothing on the CPU.
void synchronize(const at::Device& device);

/// Measures the peak of allocated tensor bytes since its construction. On the CPU it counts the allocations of this thread, on a GPU those
/// of the caching allocator. With a limit (CPU only), an allocation that would exceed it throws MemoryLimitExceeded.
class PeakMemory {
 public:
  explicit PeakMemory(const at::Device& device, std::optional<std::int64_t> limit = std::nullopt);
  std::int64_t held() const;
  std::int64_t peak() const;

 private:
  at::Device device_;
  std::int64_t before_ = 0;
  std::optional<MemoryMeter> meter_;
};

/// Whether an exception means that memory ran out: a MemoryLimitExceeded, or an allocator's own exception.
bool out_of_memory(const std::exception& error);

/// Runs the body; returns false if it ran out of memory.
bool fits_in_memory(const std::function<void()>& body);

/// Returns how many seconds one call takes, including the time until the device has finished its work.
double measure_seconds(const at::Device& device, const std::function<void()>& call);

/// Returns the median of `values`, which must not be empty; for an even number of values, the upper of the two middle ones.
double median(std::vector<double> values);

/// Returns the median number of seconds that one call takes, over at most `repeats` measurements that together take about `budget` seconds.
/// The first call is a warm-up unless it takes the whole budget. Calls too short for the clock are measured in groups.
double median_seconds(const at::Device& device, const std::function<void()>& call, int repeats, double budget);

/// Returns a function that multiplies two square matrices, which takes 2 side^3 floating-point operations.
std::function<void()> square_product(const at::Device& device, at::ScalarType dtype, std::int64_t side);

/// The memory of the process: its resident memory, now and at its peak, and on a GPU the peak of its tensors' total size.
struct MemoryUse {
  std::int64_t resident = 0, resident_peak = 0;
  std::optional<std::int64_t> device_peak;
};
MemoryUse memory_use(const at::Device& device);

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
