// An update is two launches. The first one has one block: it stores the addresses of the gradients, which are arguments of the launch, and
// the numbers that need powers and roots in float64. (Arguments become part of a recorded CUDA graph, unlike a copy from host memory.) In
// the second one, each block updates one chunk of one tensor. A thread has kAhead words of each of the four arrays in flight. Arrays that
// do not begin at a multiple of 16 bytes, and the end of an array, are updated element by element.
#include <algorithm>
#include <cmath>

#include "kernels/adamw/table.h"
#include "kernels/device/words.h"

namespace tessera::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kResident = 4;  // blocks per multiprocessor
constexpr int kAhead = 2;
constexpr int kStride = kThreads * kWordElements<float>;  // elements of a block's words
static_assert(kAdamWChunk % (kAhead * kStride) == 0);

/// A launch's arguments may have 4,096 bytes.
constexpr int kAddresses = 448;
struct Addresses {
  const float* gradients[kAddresses];
};

/// The scalars of an update.
struct Scalars {
  const double *learning_rate, *weight_decay, *count;
  double learning_rate_scale, weight_decay_scale, beta1, beta2, epsilon;
  const float *factor, *found_inf;
};

__global__ void __launch_bounds__(kThreads) begin_update(AdamWParts table, Addresses addresses, int first, int count, Scalars given) {
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kThreads) table.gradients[first + i] = addresses.gradients[i];
  if (first > 0 || threadIdx.x > 0) return;
  const double rate = *given.learning_rate * given.learning_rate_scale, updates = *given.count;
  AdamWNumbers numbers;
  numbers.decay = static_cast<float>(rate * (*given.weight_decay * given.weight_decay_scale));
  numbers.step_size = static_cast<float>(rate / (1.0 - pow(given.beta1, updates)));
  numbers.root_scale = static_cast<float>(1.0 / sqrt(1.0 - pow(given.beta2, updates)));
  numbers.rest1 = static_cast<float>(1.0 - given.beta1);
  numbers.rest2 = static_cast<float>(1.0 - given.beta2);
  numbers.epsilon = static_cast<float>(given.epsilon);
  numbers.factor = given.factor == nullptr ? 1.0f : *given.factor;
  numbers.skipped = given.found_inf != nullptr && *given.found_inf != 0.0f ? 1 : 0;
  *table.numbers = numbers;
}

/// Updates one element. The moments and the parameter move by products that are added without rounding (fmaf), because a rounded
/// 1 - decay or beta would change each of them by the same share in every step.
__device__ __forceinline__ void update_element(const AdamWNumbers& numbers, float given, float& parameter, float& m, float& v) {
  const float gradient = numbers.factor * given;
  m = fmaf(numbers.rest1, gradient - m, m);
  v = fmaf(numbers.rest2, fmaf(gradient, gradient, -v), v);
  parameter = fmaf(-numbers.decay, parameter, parameter);
  parameter -= numbers.step_size * m / fmaf(sqrtf(v), numbers.root_scale, numbers.epsilon);
}

/// Elements whose word can be loaded as a whole, for all arrays of the chunk.
__device__ __forceinline__ bool is_aligned(const AdamWTensor& tensor, const float* gradient) {
  const auto bits = reinterpret_cast<std::uintptr_t>(tensor.parameter) | reinterpret_cast<std::uintptr_t>(tensor.exp_avg) |
                    reinterpret_cast<std::uintptr_t>(tensor.exp_avg_sq) | reinterpret_cast<std::uintptr_t>(gradient) |
                    reinterpret_cast<std::uintptr_t>(tensor.copy) << 1;  // the copy's words have 8 bytes
  return bits % 16 == 0;
}

__global__ void __launch_bounds__(kThreads, kResident) update_chunks(AdamWParts table) {
  const AdamWNumbers numbers = *table.numbers;
  if (numbers.skipped != 0) return;
  const AdamWChunk chunk = table.chunks[blockIdx.x];
  AdamWTensor tensor = table.tensors[chunk.tensor];
  const std::int64_t begin = chunk.index * kAdamWChunk, left = tensor.elements - begin;
  const int count = static_cast<int>(left < kAdamWChunk ? left : kAdamWChunk);
  const float* const gradient = table.gradients[chunk.tensor] + begin;
  tensor.parameter += begin;
  tensor.exp_avg += begin;
  tensor.exp_avg_sq += begin;
  if (tensor.copy != nullptr) tensor.copy += begin;

  const int in_words = is_aligned(tensor, gradient) ? count / kWordElements<float> * kWordElements<float> : 0;
#pragma unroll 1
  for (int at = static_cast<int>(threadIdx.x) * kWordElements<float>; at < in_words; at += kAhead * kStride) {
    Word gradients[kAhead], parameters[kAhead], first[kAhead], second[kAhead];
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      const int here = at + k * kStride;
      if (here >= in_words) continue;
      gradients[k] = load_once(gradient + here);
      parameters[k] = load_before_store(tensor.parameter + here);
      first[k] = load_before_store(tensor.exp_avg + here);
      second[k] = load_before_store(tensor.exp_avg_sq + here);
    }
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      const int here = at + k * kStride;
      if (here >= in_words) continue;
      float updated[kWordElements<float>];
#pragma unroll
      for (int i = 0; i < kWordElements<float>; ++i) {
        float m = element<float>(first[k], i), v = element<float>(second[k], i);
        updated[i] = element<float>(parameters[k], i);
        update_element(numbers, element<float>(gradients[k], i), updated[i], m, v);
        set_element(parameters[k], i, updated[i]);
        set_element(first[k], i, m);
        set_element(second[k], i, v);
      }
      store_once(tensor.parameter + here, parameters[k]);
      store_once(tensor.exp_avg + here, first[k]);
      store_once(tensor.exp_avg_sq + here, second[k]);
      if (tensor.copy != nullptr)
        store_once(tensor.copy + here, bfloat16_pair(updated[0], updated[1]), bfloat16_pair(updated[2], updated[3]));
    }
  }
#pragma unroll 1
  for (int at = in_words + static_cast<int>(threadIdx.x); at < count; at += kThreads) {
    float parameter = tensor.parameter[at], m = tensor.exp_avg[at], v = tensor.exp_avg_sq[at];
    update_element(numbers, gradient[at], parameter, m, v);
    tensor.parameter[at] = parameter;
    tensor.exp_avg[at] = m;
    tensor.exp_avg_sq[at] = v;
    if (tensor.copy != nullptr) tensor.copy[at] = from_float<Bfloat16>(parameter).bits;
  }
}

}  // namespace

namespace TESSERA_DEVICE_NAMESPACE {

Status adamw_update(const AdamWUpdate& given, void* stream) {
  if (Status status = check(given); !status.ok() || given.chunks == 0) return status;
  const AdamWParts table = adamw_parts(static_cast<unsigned char*>(given.table), given.tensors);
  const Scalars scalars{given.learning_rate, given.weight_decay, given.count, given.learning_rate_scale, given.weight_decay_scale,
                        given.beta1, given.beta2, given.epsilon, given.factor, given.found_inf};
  for (std::int64_t first = 0; first < given.tensors; first += kAddresses) {
    Addresses addresses{};
    const std::int64_t count = std::min<std::int64_t>(kAddresses, given.tensors - first);
    std::copy_n(given.gradients + first, count, addresses.gradients);
    Status status = launch("adamw", begin_update, dim3(1), kThreads, 0, stream, table, addresses, static_cast<int>(first),
                           static_cast<int>(count), scalars);
    if (!status.ok()) return status;
  }
  return launch("adamw", update_chunks, dim3(static_cast<unsigned>(given.chunks)), kThreads, 0, stream, table);
}

}  // namespace TESSERA_DEVICE_NAMESPACE
}  // namespace tessera::kernels
