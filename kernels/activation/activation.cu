// These kernels are memory-bound: each matrix is read once or written once, in words of 16 bytes.
// Backward: a block processes a tile of columns over a slice of the rows. A thread owns one word of columns and adds the sums over its rows
// in registers. The warps of a block add theirs in order, and the last blocks of a tile add those of all slices (last_block.h).
#include <algorithm>
#include <initializer_list>

#include "kernels/activation/gate.h"
#include "kernels/device/last_block.h"

namespace tessera::kernels {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32;
constexpr int kWordsInFlight = 4;  // of each matrix
constexpr std::int64_t kForwardBlocks = 132 * 8;
constexpr std::int64_t kBackwardBlocks = 132 * 4;

/// The columns of a backward block, which are those of one warp.
template <class Element>
constexpr int kTileColumns = 32 * kWordElements<Element>;

template <class Element, bool kNormal>
__device__ __forceinline__ Gate gate_of(float x, const Sigmoid& sigmoid) {
  if constexpr (kNormal) return normal_gate<Element>(x);
  return sigmoid_gate(x, sigmoid);
}

/// Returns the word of up to `count` elements at an address, which is aligned to 16 bytes if `whole` is true.
template <class Element>
__device__ __forceinline__ Word load(const Element* from, std::int64_t count, bool whole) {
  if (whole) return load_once(from);
  Word word = {};
#pragma unroll
  for (int i = 0; i < kWordElements<Element>; ++i)
    if (i < count) set_element(word, i, from[i]);
  return word;
}
template <class Element>
__device__ __forceinline__ void store(Element* to, const float (&values)[kWordElements<Element>], std::int64_t count, bool whole) {
  if (whole) {
    Word word = {};
#pragma unroll
    for (int i = 0; i < kWordElements<Element>; ++i) set_element(word, i, from_float<Element>(values[i]));
    store_word(to, word);
  } else {
#pragma unroll
    for (int i = 0; i < kWordElements<Element>; ++i)
      if (i < count) to[i] = from_float<Element>(values[i]);
  }
}

/// The matrices are processed as arrays of `count` elements.
template <class Element, bool kNormal, bool kFactor>
__global__ void __launch_bounds__(kThreads) activate(ActivationForward call, Sigmoid sigmoid, std::int64_t count, bool aligned) {
  constexpr int kEach = kWordElements<Element>;
  const auto* const x = static_cast<const Element*>(call.x);
  const auto* const factor = static_cast<const Element*>(call.factor);
  const std::int64_t step = static_cast<std::int64_t>(kThreads) * kEach, chunk = kWordsInFlight * step;
  for (std::int64_t begin = blockIdx.x * chunk + threadIdx.x * kEach; begin < count; begin += gridDim.x * chunk) {
    Word words[kWordsInFlight] = {}, factors[kFactor ? kWordsInFlight : 1] = {};
#pragma unroll
    for (int k = 0; k < kWordsInFlight; ++k) {
      const std::int64_t at = begin + k * step, left = count - at;
      if (left <= 0) continue;
      words[k] = load(x + at, left, aligned && left >= kEach);
      if constexpr (kFactor) factors[k] = load(factor + at, left, aligned && left >= kEach);
    }
#pragma unroll
    for (int k = 0; k < kWordsInFlight; ++k) {
      const std::int64_t at = begin + k * step, left = count - at;
      if (left <= 0) continue;
      float values[kEach];
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        const float value = element<Element>(words[k], i);
        values[i] = value * gate_of<Element, kNormal>(value, sigmoid).share;
        if constexpr (kFactor) values[i] *= element<Element>(factors[k], i);
      }
      store(static_cast<Element*>(call.y) + at, values, left, aligned && left >= kEach);
    }
  }
}

/// How the backward pass divides the rows. Block (x, y) has the tile x of columns and the slice y of rows.
struct Division {
  int tiles, slices;
  std::int64_t slice_rows, pitch;  // pitch: floats of a slice's sums in the workspace
};
Division divide(const ActivationProblem& problem) {
  const std::int64_t columns = 32 * 16 / static_cast<std::int64_t>(size_of(problem.type)), together = kWarps * kWordsInFlight;
  const std::int64_t tiles = (problem.width + columns - 1) / columns, groups = (problem.rows + together - 1) / together;
  const std::int64_t wanted = std::max<std::int64_t>(1, std::min(groups, kBackwardBlocks / tiles));
  const std::int64_t slice_rows = (groups + wanted - 1) / wanted * together;
  return {static_cast<int>(tiles), static_cast<int>((problem.rows + slice_rows - 1) / slice_rows), slice_rows, 2 * tiles * columns};
}
std::int64_t counter_bytes(const Division& division) {
  return (division.tiles * block_sum_counters(division.slices) * 4 + 15) / 16 * 16;
}

/// Adds a thread's sums to those of the other warps, in order, and writes them to `to` [kTileColumns].
template <int kEach>
__device__ __forceinline__ void write_block_sum(const float (&sums)[kEach], float* to) {
  __shared__ float of_warps[kWarps][32 * kEach];
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  __syncthreads();  // the sums of the call before have been read
#pragma unroll
  for (int i = 0; i < kEach; ++i) of_warps[warp][lane * kEach + i] = sums[i];
  __syncthreads();
  const int column = static_cast<int>(threadIdx.x);
  if (column >= 32 * kEach) return;
  float total = of_warps[0][column];
  for (int other = 1; other < kWarps; ++other) total += of_warps[other][column];
  to[column] = total;
}

template <class Element, bool kNormal, bool kFactor>
__global__ void __launch_bounds__(kThreads, kFactor ? 1 : 2)
    backpropagate_activation(ActivationBackward call, Sigmoid sigmoid, Division division, BlockSums sums, bool aligned) {
  constexpr int kEach = kWordElements<Element>, kColumns = kTileColumns<Element>;
  const std::int64_t width = call.problem.width, column = static_cast<std::int64_t>(blockIdx.x) * kColumns + threadIdx.x % 32 * kEach;
  const std::int64_t first_row = blockIdx.y * division.slice_rows + threadIdx.x / 32;
  const std::int64_t slice_end = (blockIdx.y + 1) * division.slice_rows;
  const std::int64_t end = slice_end < call.problem.rows ? slice_end : call.problem.rows;
  const std::int64_t left = width - column;
  const auto* const x = static_cast<const Element*>(call.x);
  const auto* const factor = static_cast<const Element*>(call.factor);
  const auto* const grad_y = static_cast<const Element*>(call.grad_y);
  float of_x[kEach] = {}, of_factor[kFactor ? kEach : 1] = {};
  for (std::int64_t row = first_row; row < end && left > 0; row += kWarps * kWordsInFlight) {
    Word words[kWordsInFlight] = {}, gradients[kWordsInFlight] = {}, factors[kFactor ? kWordsInFlight : 1] = {};
#pragma unroll
    for (int k = 0; k < kWordsInFlight; ++k) {
      if (row + k * kWarps >= end) continue;
      const std::int64_t at = (row + k * kWarps) * width + column;
      words[k] = load(x + at, left, aligned);
      gradients[k] = load(grad_y + at, left, aligned);
      if constexpr (kFactor) factors[k] = load(factor + at, left, aligned);
    }
#pragma unroll
    for (int k = 0; k < kWordsInFlight; ++k) {
      if (row + k * kWarps >= end) continue;
      const std::int64_t at = (row + k * kWarps) * width + column;
      float grad_x[kEach], grad_factor[kEach];
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        const float value = element<Element>(words[k], i), gradient = element<Element>(gradients[k], i);
        const Gate gate = gate_of<Element, kNormal>(value, sigmoid);
        grad_x[i] = gradient * (gate.share + value * gate.slope);
        if constexpr (kFactor) {
          grad_x[i] *= element<Element>(factors[k], i);
          grad_factor[i] = gradient * value * gate.share;
          of_factor[i] += i < left ? grad_factor[i] : 0.0f;
        }
        of_x[i] += i < left ? grad_x[i] : 0.0f;
      }
      store(static_cast<Element*>(call.grad_x) + at, grad_x, left, aligned);
      if constexpr (kFactor) store(static_cast<Element*>(call.grad_factor) + at, grad_factor, left, aligned);
    }
  }
  if (call.grad_x_sum == nullptr && call.grad_factor_sum == nullptr) return;
  sums.partials += static_cast<std::int64_t>(blockIdx.x) * 2 * kColumns;
  sums.counters += blockIdx.x * block_sum_counters(division.slices);
  float* const to = sums.partials + blockIdx.y * sums.pitch;
  write_block_sum(of_x, to);
  if constexpr (kFactor) write_block_sum(of_factor, to + kColumns);
  const std::int64_t first_column = static_cast<std::int64_t>(blockIdx.x) * kColumns;
  add_block_sums(sums, static_cast<int>(blockIdx.y), division.slices, kFactor ? 2 * kColumns : kColumns,
                 [&](int first, const float(&totals)[4]) {
                   float* const result = first < kColumns ? call.grad_x_sum : call.grad_factor_sum;
                   const std::int64_t from = first_column + first % kColumns;
#pragma unroll
                   for (int i = 0; i < 4; ++i)
                     if (result != nullptr && from + i < width) result[from + i] = totals[i];
                 });
}

bool are_aligned(std::initializer_list<const void*> matrices) {
  return std::all_of(matrices.begin(), matrices.end(),
                     [](const void* matrix) { return reinterpret_cast<std::uintptr_t>(matrix) % 16 == 0; });
}

template <class Element, bool kNormal, bool kFactor>
struct Kernel {};

/// Calls start(Kernel<...>()) for the instantiation that the problem needs.
template <class Start>
Status with_kernel(const ActivationProblem& problem, bool factor, const Start& start) {
  const auto of_type = [&](auto element) {
    using Element = decltype(element);
    if (problem.activation == Activation::kGelu)
      return factor ? start(Kernel<Element, true, true>()) : start(Kernel<Element, true, false>());
    return factor ? start(Kernel<Element, false, true>()) : start(Kernel<Element, false, false>());
  };
  return problem.type == DataType::kBfloat16 ? of_type(Bfloat16()) : of_type(float());
}

template <class Element, bool kNormal, bool kFactor>
Status start_forward(Kernel<Element, kNormal, kFactor>, const ActivationForward& call, void* stream) {
  const std::int64_t count = call.problem.rows * call.problem.width, chunk = kThreads * kWordElements<Element> * kWordsInFlight;
  const auto blocks = static_cast<unsigned>(std::min(kForwardBlocks, (count + chunk - 1) / chunk));
  return launch("activation forward", activate<Element, kNormal, kFactor>, dim3(blocks), kThreads, 0, stream, call,
                sigmoid_of(call.problem.activation), count, are_aligned({call.x, call.factor, call.y}));
}

template <class Element, bool kNormal, bool kFactor>
Status start_backward(Kernel<Element, kNormal, kFactor>, const ActivationBackward& call, void* stream) {
  const char* const name = "activation backward";
  const Division division = divide(call.problem);
  BlockSums sums = {};
  if (call.grad_x_sum != nullptr || call.grad_factor_sum != nullptr) {
    unsigned char* const memory = static_cast<unsigned char*>(call.workspace);
    const std::int64_t counters = counter_bytes(division);
    sums = {reinterpret_cast<unsigned*>(memory), reinterpret_cast<float*>(memory + counters), division.pitch};
    if (Status status = clear_bytes(name, memory, static_cast<std::size_t>(counters), stream); !status.ok()) return status;
  }
  const bool aligned = call.problem.width % kWordElements<Element> == 0 &&
                       are_aligned({call.x, call.factor, call.grad_y, call.grad_x, call.grad_factor});
  return launch(name, backpropagate_activation<Element, kNormal, kFactor>,
                dim3(static_cast<unsigned>(division.tiles), static_cast<unsigned>(division.slices)), kThreads, 0, stream, call,
                sigmoid_of(call.problem.activation), division, sums, aligned);
}

}  // namespace

namespace TESSERA_DEVICE_NAMESPACE {

std::size_t activation_workspace(const ActivationProblem& problem) {
  if (problem.rows < 1 || problem.width < 1) return 0;
  const Division division = divide(problem);
  return static_cast<std::size_t>(counter_bytes(division) + division.slices * division.pitch * 4);
}

Status activation_forward(const ActivationForward& arguments, void* stream) {
  if (Status status = check(arguments); !status.ok() || arguments.problem.rows == 0) return status;
  return with_kernel(arguments.problem, arguments.factor != nullptr, [&](auto kernel) { return start_forward(kernel, arguments, stream); });
}

Status activation_backward(const ActivationBackward& arguments, void* stream) {
  if (Status status = check(arguments); !status.ok() || arguments.problem.rows == 0) return status;
  return with_kernel(arguments.problem, arguments.factor != nullptr,
                     [&](auto kernel) { return start_backward(kernel, arguments, stream); });
}

}  // namespace TESSERA_DEVICE_NAMESPACE
}  // namespace tessera::kernels
