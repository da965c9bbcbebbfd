#include "src/measure/machine.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <chrono>
#include <cmath>
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
#include "src/ops/tuning.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>

namespace tessera {
namespace {

using Clock = std::chrono::steady_clock;

// Returns a value of /proc/self/status ("1234 kB") in bytes.
std::int64_t own_bytes(const std::string& key) {
  const std::string text = value_in("/proc/self/status", key);
  return text.empty() ? 0 : std::stoll(text) * 1024;
}

const c10::CachingAllocator::Stat& allocated_bytes(const c10::CachingDeviceAllocator::DeviceStats& stats) {
  return stats.allocated_bytes[static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE)];
}

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
  return std::array{"float32", "TF32", "bf16", "fp16"}.at(static_cast<std::size_t>(arithmetic));
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
  measure_seconds(device, product);  // warm-up: starts threads and chooses an algorithm
  double fastest = std::numeric_limits<double>::infinity(), spent = 0;
  for (int slower = 0; slower < kEnough && (spent < kBudget || slower < 3); ++slower) {
    const double seconds = measure_seconds(device, product);
    spent += seconds;
    if (seconds < fastest) slower = 0;
    fastest = std::min(fastest, seconds);
  }
  return 2.0 * std::pow(static_cast<double>(side), 3) / fastest;
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

std::int64_t whole_memory(const at::Device& device) {
  if (!device.is_cpu()) return static_cast<std::int64_t>(at::accelerator::getMemoryInfo(device.index()).second);
  return whole_memory();
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

double measure_seconds(const at::Device& device, const std::function<void()>& call) {
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
  const double first = measure_seconds(device, call);
  if (first >= budget) return first;
  constexpr double kShortest = 2e-3;
  const int calls = std::max(1, static_cast<int>(std::ceil(kShortest / std::max(first, 1e-6))));
  const auto several = [&] {
    for (int i = 0; i < calls; ++i) call();
  };
  std::vector<double> times;
  do {
    times.push_back(measure_seconds(device, several) / calls);
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
