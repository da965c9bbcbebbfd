// The kernel for most problems on Hopper GPUs is in token_max_projection_forward_hopper.cu.
// Forward: A block of 8 warps processes one sample and a tile of the vocabulary. It processes the positions in passes.
// Depending on the length of the sample, a pass multiplies 64 positions by 256 columns, 128 positions by 128 columns,
// or 256 positions by 64 columns. Each warp multiplies 32 positions by 64 columns. Each pass reads tokens and table
// once, in slices of 64 bytes along the width, through double-buffered shared memory. Sums stay in registers. For
// bfloat16, tensor cores compute the products.
// Each lane keeps the best position so far for each of its columns. At the end, lanes and warps compare their best
// positions. Consecutive blocks process the same sample, so that its tokens and the table come from the L2
// cache. Products never leave the registers, and only 12 bytes per entry of the encoding are written to global memory.
// A tile of 16 rows is not multiplied if it has no real position.
#include <algorithm>

#include "kernels/device/current_device.h"
#include "kernels/device/staging.h"
#include "kernels/token_max_projection/best.h"
#include "kernels/token_max_projection/configurations.h"

namespace tessera::kernels {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = 32 * kWarps;
/// The numbers of 16-row tiles and of 8-column tiles per warp.
constexpr int kRowTiles = 2, kColumnTiles = 8;
constexpr int kWarpRows = 16 * kRowTiles, kWarpColumns = 8 * kColumnTiles;

template <class Element>
struct ForwardArguments {
  int positions, width, vocabulary, tiles;  // tiles: number of tiles of the vocabulary
  bool aligned;                             // whether rows can be read 16 bytes at a time
  const Element* tokens;
  const std::uint8_t* mask;
  const Element* table;
  const float* bias;
  float* encoding;
  std::int64_t* argmax;
};

/// The layout of a block, which has kRowWarps x (kWarps / kRowWarps) warps. At the end, the staging area holds
/// the best values of the warps.
template <class Element, int kRowWarps>
struct ForwardLayout {
  static constexpr int kColumnWarps = kWarps / kRowWarps;
  static constexpr int kRows = kWarpRows * kRowWarps, kColumns = kWarpColumns * kColumnWarps;
  static constexpr int kStageElements = (kRows + kColumns) * WidthStage<Element>::kPitch;
  static constexpr int kBytes = 2 * kStageElements * static_cast<int>(sizeof(Element));
  static_assert(kRowWarps * kColumns * static_cast<int>(sizeof(Best)) <= kBytes);
};

template <class Element, int kRowWarps>
__global__ void __launch_bounds__(kThreads) project_tile(ForwardArguments<Element> arguments) {
  using Layout = ForwardLayout<Element, kRowWarps>;
  using Stage = WidthStage<Element>;
  TESSERA_DYNAMIC_SHARED(memory);
  Element* const staging = reinterpret_cast<Element*>(memory);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int row_warp = warp / Layout::kColumnWarps, column_warp = warp % Layout::kColumnWarps;
  const std::int64_t sample = blockIdx.x / arguments.tiles;
  const int first = static_cast<int>(blockIdx.x % arguments.tiles) * Layout::kColumns;
  const int left = arguments.vocabulary - first, columns = left < Layout::kColumns ? left : Layout::kColumns;
  const int width = arguments.width;
  const Element* const tokens = arguments.tokens + sample * arguments.positions * width;
  const Element* const table = arguments.table + static_cast<std::int64_t>(first) * width;
  const int steps = (width + Stage::kDepth - 1) / Stage::kDepth;

  Best best[kColumnTiles][2];
#pragma unroll
  for (int j = 0; j < kColumnTiles; ++j) best[j][0] = best[j][1] = {0.0f, -1};

  for (int pass = 0; pass < arguments.positions; pass += Layout::kRows) {
    const int warp_first = pass + row_warp * kWarpRows, position = warp_first + lane;
    const bool is_real = position < arguments.positions &&
                         (arguments.mask == nullptr || arguments.mask[sample * arguments.positions + position] != 0);
    const unsigned real = __ballot_sync(kAllLanes, is_real ? 1 : 0);  // one bit for each row of the warp
    const WarpTiles tiles{
        row_warp * kWarpRows,       16, ((real & 0xffffu) != 0 ? 1u : 0u) | ((real >> 16) != 0 ? 2u : 0u),
        column_warp * kWarpColumns, 8,  columns};
    float sums[kRowTiles][kColumnTiles][4];
    clear(sums);
    pipeline(
        steps,
        [&](int step, int buffer) {
          Element* const token_stage = staging + buffer * Layout::kStageElements;
          const int column = step * Stage::kDepth;
          stage<kThreads>(token_stage, Stage::kPitch, Layout::kRows, 4,
                          tokens + static_cast<std::int64_t>(pass) * width, width, column, width, arguments.aligned,
                          [&](int row) { return pass + row < arguments.positions; });
          stage<kThreads>(token_stage + Layout::kRows * Stage::kPitch, Stage::kPitch, Layout::kColumns, 4, table, width,
                          column, width, arguments.aligned, [&](int row) { return row < columns; });
        },
        [&](int, int buffer) {
          const Element* const token_stage = staging + buffer * Layout::kStageElements;
          accumulate<DepthAlong::kRow, DepthAlong::kRow>(sums, tiles, Stage::kDepth, token_stage, Stage::kPitch,
                                                         token_stage + Layout::kRows * Stage::kPitch, Stage::kPitch);
        });
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = 16 * i + 8 * half + lane / 4;
        if ((real >> row & 1u) == 0) continue;
#pragma unroll
        for (int j = 0; j < kColumnTiles; ++j) {
#pragma unroll
          for (int c = 0; c < 2; ++c) {
            const Best candidate{sums[i][j][2 * half + c], warp_first + row};
            if (before(candidate, best[j][c])) best[j][c] = candidate;
          }
        }
      }
    }
  }

  Best* const of_warps = reinterpret_cast<Best*>(memory);  // [kRowWarps, kColumns]; the pipeline ends with a barrier, so the memory is free
#pragma unroll
  for (int j = 0; j < kColumnTiles; ++j) {
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      Best mine = best[j][c];
#pragma unroll
      for (int step = 4; step < 32; step *= 2) {
        const Best other{__shfl_xor_sync(kAllLanes, mine.value, step), __shfl_xor_sync(kAllLanes, mine.position, step)};
        if (before(other, mine)) mine = other;
      }
      if (lane < 4) of_warps[row_warp * Layout::kColumns + column_warp * kWarpColumns + 8 * j + 2 * lane + c] = mine;
    }
  }
  __syncthreads();
  for (int column = threadIdx.x; column < columns; column += kThreads) {
    Best top = of_warps[column];
    for (int row = 1; row < kRowWarps; ++row) {
      const Best other = of_warps[row * Layout::kColumns + column];
      if (before(other, top)) top = other;
    }
    const std::int64_t place = sample * arguments.vocabulary + first + column;
    write_best(top, arguments.bias[first + column], place, arguments.encoding, arguments.argmax);
  }
}

template <class Element, int kRowWarps>
Status start(const TokenMaxProjectionForward& given, void* stream) {
  using Layout = ForwardLayout<Element, kRowWarps>;
  const TokenMaxProjectionProblem& problem = given.problem;
  constexpr std::int64_t kPerVector = 16 / sizeof(Element);
  const auto is_aligned = [](const void* data) { return reinterpret_cast<std::uintptr_t>(data) % 16 == 0; };
  ForwardArguments<Element> arguments;
  arguments.positions = static_cast<int>(problem.positions);
  arguments.width = static_cast<int>(problem.width);
  arguments.vocabulary = static_cast<int>(problem.vocabulary);
  arguments.tiles = static_cast<int>((problem.vocabulary + Layout::kColumns - 1) / Layout::kColumns);
  arguments.aligned = is_aligned(given.tokens) && is_aligned(given.table) && problem.width % kPerVector == 0;
  arguments.tokens = static_cast<const Element*>(given.tokens);
  arguments.mask = given.mask;
  arguments.table = static_cast<const Element*>(given.table);
  arguments.bias = given.bias;
  arguments.encoding = given.encoding;
  arguments.argmax = given.argmax;
  const std::int64_t blocks = problem.batch * arguments.tiles;
  if (blocks > kMostBlocks) {
    return Status::failure("token_max_projection: a batch of " + std::to_string(problem.batch) +
                           " with a vocabulary of " + std::to_string(problem.vocabulary) +
                           " is too large for one launch");
  }
  return launch("token_max_projection forward", project_tile<Element, kRowWarps>, dim3(static_cast<unsigned>(blocks)),
                kThreads, Layout::kBytes, stream, arguments);
}

template <class Element>
Status start_for_length(const TokenMaxProjectionForward& given, void* stream) {
  if (given.problem.positions <= 2 * kWarpRows) return start<Element, 2>(given, stream);
  if (given.problem.positions <= 4 * kWarpRows) return start<Element, 4>(given, stream);
  return start<Element, 8>(given, stream);
}

}  // namespace

namespace TESSERA_DEVICE_NAMESPACE {

Status token_max_projection_forward(const TokenMaxProjectionForward& arguments, void* stream) {
  if (Status status = check(arguments); !status.ok() || arguments.problem.batch == 0) return status;
  const TokenMaxProjectionConfiguration* const configuration = choose_configuration(arguments, current_device());
  if (configuration == nullptr) {
    return Status::failure(std::string("token_max_projection: the configuration ") + arguments.problem.configuration +
                           " cannot process these arguments on this GPU");
  }
  if (configuration->positions > 0) return token_max_projection_forward_hopper(arguments, configuration->positions, stream);
  return arguments.problem.type == DataType::kBfloat16 ? start_for_length<Bfloat16>(arguments, stream)
                                                       : start_for_length<float>(arguments, stream);
}

}  // namespace TESSERA_DEVICE_NAMESPACE
}  // namespace tessera::kernels
