// The backward pass: sums the rows at the positions of the maxima. The L2 cache limits the speed. For each maximum that
// passes a gradient, one row of the tokens is read (for the gradient of the table), and one row of the table (for the
// gradient of the tokens). Atomics are not needed, because every sum belongs to one warp. The warp adds in the order of
// the vocabulary or the batch, so that results are the same in every run.
//   table   A warp processes one row of the vocabulary, 256 columns at a time in registers. It loops over the batch.
//   tokens  A block processes one sample, with 256 of its positions and 64 columns in shared memory. Each of its 8
//           warps owns every eighth position. A warp reads the sample's weights 32 at a time, and adds those of its own
//           positions.
#include <algorithm>

#include "kernels/device/primitives.h"
#include "kernels/token_max_projection/token_max_projection.h"

namespace tessera::kernels {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = 32 * kWarps;
constexpr int kTablePieces = 8;  // columns per lane
constexpr int kTokenPieces = 2;
constexpr int kBlockPositions = 256;
constexpr int kBlockColumns = 32 * kTokenPieces;

template <class Element>
struct BackwardArguments {
  int batch, positions, width, vocabulary;
  const Element* tokens;
  const Element* table;
  const std::int64_t* argmax;
  const float* weight;
  Element* grad_tokens;
  Element* grad_table;
};

/// 32 entries, one in each lane of a warp. Only the entries whose bit in `bits` is set are used.
struct Entries {
  float weight;
  int position;
  unsigned bits;
};

/// Calls add(entry, weight, position) for each used entry, in the order of the lanes. Every lane makes all these calls.
template <class Add>
__device__ __forceinline__ void for_each_entry(const Entries& entries, Add add) {
  for_each_lane(entries.bits, [&](int lane) {
    add(lane, __shfl_sync(kAllLanes, entries.weight, lane), __shfl_sync(kAllLanes, entries.position, lane));
  });
}

template <class Element>
__global__ void __launch_bounds__(kThreads) gather_table(BackwardArguments<Element> arguments) {
  const int lane = threadIdx.x % 32, width = arguments.width;
  const std::int64_t v = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  if (v >= arguments.vocabulary) return;  // the condition is the same for all lanes of a warp
  for (int column0 = lane; column0 - lane < width; column0 += 32 * kTablePieces) {
    float sums[kTablePieces];
#pragma unroll
    for (int i = 0; i < kTablePieces; ++i) sums[i] = 0.0f;
    for (int sample0 = 0; sample0 < arguments.batch; sample0 += 32) {
      const std::int64_t place = (sample0 + lane) * static_cast<std::int64_t>(arguments.vocabulary) + v;
      const bool exists = sample0 + lane < arguments.batch;
      Entries entries;
      entries.weight = exists ? arguments.weight[place] : 0.0f;
      entries.position = exists ? static_cast<int>(arguments.argmax[place]) : -1;
      entries.bits = __ballot_sync(kAllLanes, entries.weight != 0.0f ? 1 : 0);
      for_each_entry(entries, [&](int entry, float weight, int position) {
        const Element* const row =
            arguments.tokens + (static_cast<std::int64_t>(sample0 + entry) * arguments.positions + position) * width;
#pragma unroll
        for (int i = 0; i < kTablePieces; ++i) {
          const int column = column0 + 32 * i;
          if (column < width) sums[i] = fmaf(weight, to_float(row[column]), sums[i]);
        }
      });
    }
#pragma unroll
    for (int i = 0; i < kTablePieces; ++i) {
      const int column = column0 + 32 * i;
      if (column < width) arguments.grad_table[v * width + column] = from_float<Element>(sums[i]);
    }
  }
}

template <class Element>
__global__ void __launch_bounds__(kThreads) gather_tokens(BackwardArguments<Element> arguments) {
  TESSERA_DYNAMIC_SHARED(memory);
  float* const sums = reinterpret_cast<float*>(memory);  // [kBlockPositions, kBlockColumns]
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, width = arguments.width;
  const std::int64_t sample = blockIdx.x;
  const int column0 = static_cast<int>(blockIdx.y) * kBlockColumns + lane;
  const int first = static_cast<int>(blockIdx.z) * kBlockPositions;
  const int left = arguments.positions - first, positions = left < kBlockPositions ? left : kBlockPositions;
  for (int position = warp; position < positions; position += kWarps) {
#pragma unroll
    for (int i = 0; i < kTokenPieces; ++i) sums[position * kBlockColumns + lane + 32 * i] = 0.0f;
  }
  for (int v0 = 0; v0 < arguments.vocabulary; v0 += 32) {
    const std::int64_t place = sample * arguments.vocabulary + v0 + lane;
    Entries entries;
    entries.weight = v0 + lane < arguments.vocabulary ? arguments.weight[place] : 0.0f;
    entries.position = entries.weight != 0.0f ? static_cast<int>(arguments.argmax[place]) - first : -1;
    const bool mine = entries.position >= 0 && entries.position < positions && entries.position % kWarps == warp;
    entries.bits = __ballot_sync(kAllLanes, mine ? 1 : 0);
    for_each_entry(entries, [&](int entry, float weight, int position) {
      const Element* const row = arguments.table + static_cast<std::int64_t>(v0 + entry) * width;
      float* const sum = sums + position * kBlockColumns + lane;
#pragma unroll
      for (int i = 0; i < kTokenPieces; ++i) {
        const int column = column0 + 32 * i;
        if (column < width) sum[32 * i] = fmaf(weight, to_float(row[column]), sum[32 * i]);
      }
    });
  }
  for (int position = warp; position < positions; position += kWarps) {
    Element* const row = arguments.grad_tokens + (sample * arguments.positions + first + position) * width;
#pragma unroll
    for (int i = 0; i < kTokenPieces; ++i) {
      const int column = column0 + 32 * i;
      if (column < width) row[column] = from_float<Element>(sums[position * kBlockColumns + lane + 32 * i]);
    }
  }
}

std::int64_t pieces(std::int64_t whole, std::int64_t piece) {
  return (whole + piece - 1) / piece;
}

template <class Element>
Status start(const TokenMaxProjectionBackward& given, void* stream) {
  const TokenMaxProjectionProblem& problem = given.problem;
  BackwardArguments<Element> arguments;
  arguments.batch = static_cast<int>(problem.batch);
  arguments.positions = static_cast<int>(problem.positions);
  arguments.width = static_cast<int>(problem.width);
  arguments.vocabulary = static_cast<int>(problem.vocabulary);
  arguments.tokens = static_cast<const Element*>(given.tokens);
  arguments.table = static_cast<const Element*>(given.table);
  arguments.argmax = given.argmax;
  arguments.weight = given.weight;
  arguments.grad_tokens = static_cast<Element*>(given.grad_tokens);
  arguments.grad_table = static_cast<Element*>(given.grad_table);
  if (given.grad_table != nullptr) {
    const dim3 grid(static_cast<unsigned>(pieces(problem.vocabulary, kWarps)));
    Status status =
        launch("token_max_projection backward", gather_table<Element>, grid, kThreads, 0, stream, arguments);
    if (!status.ok()) return status;
  }
  if (given.grad_tokens == nullptr || problem.batch == 0) return {};
  if (problem.batch > kMostBlocks)
    return Status::failure("token_max_projection: the batch is too large for one launch");
  const dim3 grid(static_cast<unsigned>(problem.batch), static_cast<unsigned>(pieces(problem.width, kBlockColumns)),
                  static_cast<unsigned>(pieces(problem.positions, kBlockPositions)));
  const std::int64_t rows = std::min<std::int64_t>(kBlockPositions, problem.positions);
  return launch("token_max_projection backward", gather_tokens<Element>, grid, kThreads,
                static_cast<std::size_t>(rows) * kBlockColumns * sizeof(float), stream, arguments);
}

}  // namespace

namespace TESSERA_DEVICE_NAMESPACE {

Status token_max_projection_backward(const TokenMaxProjectionBackward& arguments, void* stream) {
  if (Status status = check(arguments); !status.ok()) return status;
  return arguments.problem.type == DataType::kBfloat16 ? start<Bfloat16>(arguments, stream)
                                                       : start<float>(arguments, stream);
}

}  // namespace TESSERA_DEVICE_NAMESPACE
}  // namespace tessera::kernels
