#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <tessera/measure/step_meter.h>

namespace tessera {

/// "Intel(R) Xeon(R) ..., 2 threads" or the GPU's name as its driver tells it.
std::string machine_name(const at::Device& device);

/// Bytes that could still be allocated: free memory and caches that give way, within the control group's limit.
std::int64_t available_memory(const at::Device& device);

/// Bytes that the caching allocator of a GPU holds without using them; 0 on the CPU.
std::int64_t unused_by_allocator(const at::Device& device);

/// Waits for a GPU's queue; nothing on the CPU.
void synchronize(const at::Device& device);

/// Highest number of bytes of tensors above what was there when it was made: of this thread on the CPU, of the caching
/// allocator on a GPU. With a limit (CPU only) allocations above it throw MemoryLimitExceeded.
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

/// Whether an exception says that memory ran out: a MemoryLimitExceeded, or an allocator's own refusal.
bool out_of_memory(const std::exception& error);

/// Runs the body; false if it ran out of memory.
bool fits_in_memory(const std::function<void()>& body);

/// Seconds of one call, the device's queue included.
double seconds_of(const at::Device& device, const std::function<void()>& call);

/// The middle value, the upper one of two. Of at least one value.
double median(std::vector<double> values);

/// Median seconds of one call, over at most `repeats` measurements that together take about `budget` seconds. The first
/// call warms up unless it alone takes the budget. Calls too short for the clock are made several at a time.
double median_seconds(const at::Device& device, const std::function<void()>& call, int repeats, double budget);

/// A call that multiplies two square matrices, 2 side^3 floating-point operations.
std::function<void()> square_product(const at::Device& device, at::ScalarType dtype, std::int64_t side);

/// What the process holds: resident memory now and at its highest, and on a GPU the highest sum of its tensors.
struct MemoryUse {
  std::int64_t resident = 0, resident_peak = 0;
  std::optional<std::int64_t> device_peak;
};
MemoryUse memory_use(const at::Device& device);

}  // namespace tessera
