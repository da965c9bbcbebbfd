#include "src/measure/machine.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <dlfcn.h>
#include <filesystem>
#include <fstream>
#include <limits>
#include <new>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <ATen/DeviceAccelerator.h>
#include <ATen/Parallel.h>
#include <c10/util/Exception.h>
#include <torch/cuda.h>

#include "src/base/clock.h"
#include "src/base/machine_memory.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>

namespace tessera {
namespace {

using Clock = std::chrono::steady_clock;

// Gets the name of a GPU from the driver's library, so that no CUDA header is needed.
std::string gpu_name(int index) {
  void* const driver = ::dlopen("libcuda.so.1", RTLD_LAZY);
  if (driver != nullptr) {
    const auto initialize = reinterpret_cast<int (*)(unsigned)>(::dlsym(driver, "cuInit"));
    const auto device_at = reinterpret_cast<int (*)(int*, int)>(::dlsym(driver, "cuDeviceGet"));
    const auto name_of = reinterpret_cast<int (*)(char*, int, int)>(::dlsym(driver, "cuDeviceGetName"));
    std::array<char, 256> name{};
    int device = 0;
    const bool found = initialize != nullptr && device_at != nullptr && name_of != nullptr && initialize(0) == 0 &&
                       device_at(&device, std::max(0, index)) == 0 && name_of(name.data(), name.size(), device) == 0;
    ::dlclose(driver);
    if (found) return name.data();
  }
  return "GPU " + std::to_string(index);
}

// Returns a value of /proc/self/status ("1234 kB") in bytes.
std::int64_t own_bytes(const std::string& key) {
  const std::string text = value_in("/proc/self/status", key);
  return text.empty() ? 0 : std::stoll(text) * 1024;
}

const c10::CachingAllocator::Stat& allocated_bytes(const c10::CachingDeviceAllocator::DeviceStats& stats) {
  return stats.allocated_bytes[static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE)];
}

}  // namespace

at::Device parse_device(const std::string& name) {
  const auto count = static_cast<int>(torch::cuda::device_count());
  const bool gpu = count > 0;
  if (name == "auto") return gpu ? at::Device(at::kCUDA, 0) : at::Device(at::kCPU);
  if (name == "cpu") return at::kCPU;
  if (name == "cuda" || name.starts_with("cuda:")) {
    if (!gpu) user_error("--device ", name, ": this machine has no GPU that LibTorch can use: take cpu");
    const std::string number = name == "cuda" ? "0" : name.substr(5);
    const bool digits =
        !number.empty() && number.size() < 4 && number.find_first_not_of("0123456789") == std::string::npos;
    const int index = digits ? std::stoi(number) : -1;
    if (index >= 0 && index < count) return {at::kCUDA, static_cast<at::DeviceIndex>(index)};
    user_error("--device ", name, ": expected cuda:0 to cuda:", count - 1);
  }
  user_error("--device ", name, ": expected auto, cpu, cuda or cuda:N");
}

std::string machine_name(const at::Device& device) {
  if (!device.is_cpu()) return gpu_name(device.index());
  const std::string model = value_in("/proc/cpuinfo", "model name");
  const int threads = at::get_num_threads();
  return (model.empty() ? "CPU" : model) + ", " + std::to_string(threads) + (threads == 1 ? " thread" : " threads");
}

std::int64_t available_memory(const at::Device& device) {
  if (!device.is_cpu()) return static_cast<std::int64_t>(at::accelerator::getMemoryInfo(device.index()).first);
  return free_memory();
}

std::int64_t unused_by_allocator(const at::Device& device) {
  if (device.is_cpu()) return 0;
  const auto stats = at::accelerator::getDeviceStats(device.index());
  const auto all = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  return stats.reserved_bytes[all].current - stats.allocated_bytes[all].current;
}

void synchronize(const at::Device& device) {
  if (!device.is_cpu()) at::accelerator::synchronizeDevice(device.index());
}

PeakMemory::PeakMemory(const at::Device& device, std::optional<std::int64_t> limit) : device_(device) {
  if (device.is_cpu()) {
    meter_.emplace(limit);
    return;
  }
  synchronize(device);
  at::accelerator::resetPeakStats(device.index());
  before_ = allocated_bytes(at::accelerator::getDeviceStats(device.index())).current;
}

std::int64_t PeakMemory::held() const {
  if (meter_) return meter_->held();
  return allocated_bytes(at::accelerator::getDeviceStats(device_.index())).current - before_;
}

std::int64_t PeakMemory::peak() const {
  if (meter_) return meter_->peak();
  return allocated_bytes(at::accelerator::getDeviceStats(device_.index())).peak - before_;
}

bool out_of_memory(const std::exception& error) {
  if (dynamic_cast<const MemoryLimitExceeded*>(&error) != nullptr) return true;
  if (dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr) return true;
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) return true;
  // LibTorch's CPU allocator throws c10::Error if the system refuses to allocate.
  const auto* refusal = dynamic_cast<const c10::Error*>(&error);
  return refusal != nullptr &&
         std::string(refusal->what_without_backtrace()).find("can't allocate memory") != std::string::npos;
}

bool fits_in_memory(const std::function<void()>& body) {
  try {
    body();
    return true;
  } catch (const std::exception& error) {
    if (!out_of_memory(error)) throw;
    return false;
  }
}

double seconds_of(const at::Device& device, const std::function<void()>& call) {
  synchronize(device);
  const auto start = Clock::now();
  call();
  synchronize(device);
  return seconds_since(start);
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double median_seconds(const at::Device& device, const std::function<void()>& call, int repeats, double budget) {
  const auto start = Clock::now();
  const double first = seconds_of(device, call);
  if (first >= budget) return first;
  constexpr double kShortest = 2e-3;
  const int calls = std::max(1, static_cast<int>(std::ceil(kShortest / std::max(first, 1e-6))));
  const auto several = [&] {
    for (int i = 0; i < calls; ++i) call();
  };
  std::vector<double> times;
  do {
    times.push_back(seconds_of(device, several) / calls);
  } while (static_cast<int>(times.size()) < repeats && seconds_since(start) < budget);
  return median(std::move(times));
}

std::function<void()> square_product(const at::Device& device, at::ScalarType dtype, std::int64_t side) {
  // The values are not random, so that the state of the random generator does not change. They are not constant either, because a GPU's
  // clock depends on how many bits flip during a product.
  const at::TensorOptions options = at::TensorOptions(device).dtype(at::kFloat);
  const at::Tensor a = at::arange(side * side, options).sin_().view({side, side}).to(dtype);
  const at::Tensor b = a.t().contiguous();
  return [a, b, c = at::empty_like(a)]() mutable { at::mm_out(c, a, b); };
}

MemoryUse memory_use(const at::Device& device) {
  MemoryUse use{own_bytes("VmRSS"), own_bytes("VmHWM"), std::nullopt};
  if (!device.is_cpu()) use.device_peak = allocated_bytes(at::accelerator::getDeviceStats(device.index())).peak;
  return use;
}

}  // namespace tessera
