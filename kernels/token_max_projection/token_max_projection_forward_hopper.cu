// Forward on Hopper GPUs. An item of work is a sample and 256 rows of the table. A block has three warpgroups and processes one item after
// another:
//   - A thread (the loader) copies slices of 64 columns of the rows and of the sample's tokens into a ring of buffers.
//   - Two warpgroups (the consumers) multiply. Rows of the table are the rows of the results, 64 for each of a consumer's two tiles, and
//     positions are the columns. So four lanes have all positions of a row, and its maximum needs no shared memory.
// If a sample has more positions than the results have columns, the consumers process its positions in several passes, with the same rows.
// While a consumer searches the maxima of an item, the other one still multiplies, or multiplies slices of the next item.
// Products at positions of padding are computed and then ignored, so padding may hold anything.
// Items in a row have the same rows of the table and different samples, in groups of 64 samples, whose tokens the second-level cache keeps.
#include "kernels/device/current_device.h"
#include "kernels/device/hopper.h"
#include "kernels/token_max_projection/best.h"
#include "kernels/token_max_projection/configurations.h"

namespace tessera::kernels {
namespace {

constexpr int kConsumers = 2, kConsumerThreads = kConsumers * kWarpgroup, kThreads = kWarpgroup + kConsumerThreads;
constexpr int kTiles = 2;          // tiles of 64 rows of a consumer
constexpr int kGroupSamples = 64;  // at most
static_assert(64 * kTiles * kConsumers == TokenMaxProjectionMemory::kTableRows);

struct HopperArguments {
  TileMap table, tokens;
  int batch, positions, vocabulary;
  int items, tiles, passes, slices;  // tiles of the table, passes over the positions, and slices of the width
  const std::uint8_t* mask;
  const float* bias;
  float* encoding;
  std::int64_t* argmax;
};

struct Item {
  int sample, tile;
};

/// Returns the greater number, or NaN if one of them is NaN.
__device__ __forceinline__ float maximum_or_nan(float a, float b) {
#if defined(TESSERA_CUDA_EMULATION)
  return a != a || a > b ? a : b;
#else
  float result;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
#endif
}

/// Which of a thread's columns have real positions.
template <int kColumns>
struct RealColumns {
  static constexpr int kWords = (kColumns + 31) / 32;
  std::uint32_t words[kWords];

  /// All lanes of a warp call this. The first column has the position `first`.
  __device__ __forceinline__ RealColumns(const HopperArguments& arguments, int sample, int first) {
    const int lane = static_cast<int>(threadIdx.x % 32), last = arguments.positions - 1;
    std::uint8_t bytes[kWords];  // all of them are loaded before the first one is used
#pragma unroll
    for (int i = 0; i < kWords; ++i) bytes[i] = 1;
    if (arguments.mask != nullptr) {
      const std::uint8_t* const mask = arguments.mask + static_cast<std::int64_t>(sample) * arguments.positions;
#pragma unroll
      for (int i = 0; i < kWords; ++i) {
        const int position = first + 32 * i + lane;
        bytes[i] = mask[position < last ? position : last];
      }
    }
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      words[i] = __ballot_sync(kAllLanes, first + 32 * i + lane <= last && bytes[i] != 0 ? 1 : 0) >> (2 * (lane % 4));
    }
  }
  /// Returns the same in registers of its own, so that the compiler does not keep has() of all columns from one search to the next.
  __device__ __forceinline__ RealColumns again() const {
    RealColumns copy = *this;
#pragma unroll
    for (std::uint32_t& word : copy.words) word = static_cast<std::uint32_t>(computed_here(static_cast<int>(word)));
    return copy;
  }
  /// For the column of the results 4 j + e and 4 j + 2 + e.
  __device__ __forceinline__ bool has(int j, int e) const { return (words[j / 4] >> (8 * (j % 4) + e) & 1u) != 0; }
};

template <int kColumns>
struct HopperBlock {
  static constexpr int kStages = TokenMaxProjectionMemory(kColumns).stages, kStageBytes = TokenMaxProjectionMemory(kColumns).stage_bytes;
  static constexpr int kBarriers = TokenMaxProjectionMemory(kColumns).barriers();
  static constexpr int kSums = kColumns / 2, kNone = 1 << 30;
  using Sums = float[kTiles][kSums];

  const HopperArguments& arguments;
  unsigned char* const shared;

  __device__ __forceinline__ unsigned char* buffer(const RingPlace& place) const { return shared + place.buffer * kStageBytes; }
  // The copies into a buffer are complete; and the loader may fill it again.
  __device__ __forceinline__ Barrier& full(const RingPlace& place) const { return barriers()[place.buffer]; }
  __device__ __forceinline__ Barrier& free(const RingPlace& place) const { return barriers()[kStages + place.buffer]; }
  __device__ __forceinline__ Barrier* barriers() const { return reinterpret_cast<Barrier*>(shared + kBarriers); }

  __device__ __forceinline__ Item item(int index) const {
    const int of_group = kGroupSamples * arguments.tiles, first = index / of_group * kGroupSamples, rest = index % of_group;
    const int left = arguments.batch - first, samples = left < kGroupSamples ? left : kGroupSamples;
    return {first + rest % samples, rest / samples};
  }

  __device__ __forceinline__ void load() const {
    RingPlace place;
#pragma unroll 1
    for (int index = static_cast<int>(blockIdx.x); index < arguments.items; index += static_cast<int>(gridDim.x)) {
      const Item now = item(index);
#pragma unroll 1
      for (int step = 0; step < arguments.passes * arguments.slices; ++step, place.next(kStages)) {
        const int column = step % arguments.slices * kTileColumns, position = step / arguments.slices * kColumns;
        free(place).wait(place.parity ^ 1u);
        full(place).expect(kStageBytes);
        load_tile(buffer(place), arguments.table, full(place), {column, now.tile * TokenMaxProjectionMemory::kTableRows, 0, 0},
                  Keep::kShort);
        load_tile(buffer(place) + TokenMaxProjectionMemory::kTableBytes, arguments.tokens, full(place), {column, position, 0, now.sample},
                  Keep::kLong);
      }
    }
  }

  /// Adds the products of all slices to `sums`.
  template <int kConsumer>
  __device__ __forceinline__ void multiply_slices(Sums& sums, RingPlace& place) const {
#pragma unroll 1
    for (int slice = 0; slice < arguments.slices; ++slice, place.next(kStages)) {
      const unsigned char* const from = buffer(place);
      full(place).wait(place.parity);
      fence_products(sums);
#pragma unroll
      for (int k = 0; k < kTileColumns / 16; ++k) {
#pragma unroll
        for (int i = 0; i < kTiles; ++i) {
          multiply<Depth::kAlongRows, Depth::kAlongRows>(
              sums[i], tile_operand(from + 64 * (kConsumer * kTiles + i) * kTileRowBytes).after(k * kAlongRowsStep),
              tile_operand(from + TokenMaxProjectionMemory::kTableBytes).after(k * kAlongRowsStep), true);
        }
      }
      commit_products();
      wait_for_products<0>(sums);
      free(place).arrive();
    }
  }

  /// Calls visit(i, h, the value, the column, whether its position is real) for each result of the thread, in the order of the columns,
  /// from the last one on if kBackwards. The column is that of the lane 0.
  template <bool kBackwards, class Visit>
  static __device__ __forceinline__ void for_each_result(const Sums& sums, const RealColumns<kColumns>& real, Visit visit) {
#pragma unroll
    for (int index = 0; index < kColumns / 4; ++index) {
      const int column = kBackwards ? kColumns / 4 - 1 - index : index, j = column / 2, e = column % 2;
      const bool is_real = real.has(j, e);
#pragma unroll
      for (int i = 0; i < kTiles; ++i) {
#pragma unroll
        for (int h = 0; h < 2; ++h) visit(i, h, sums[i][4 * j + 2 * h + e], 8 * j + e, is_real);
      }
    }
  }

  /// Returns the best result of one of the thread's rows (row()), in a pass whose first column has the position `first`. The four lanes
  /// that have the same four rows search them together, and each of them gets the best result of another row.
  static __device__ __forceinline__ Best find_best(const Sums& sums, const RealColumns<kColumns>& real, int first) {
    float top[kTiles][2] = {{-kInfinity, -kInfinity}, {-kInfinity, -kInfinity}};
    int place[kTiles][2] = {{kNone, kNone}, {kNone, kNone}};
    for_each_result<false>(sums, real, [&](int i, int h, float value, int, bool is_real) {
      if (is_real) top[i][h] = maximum_or_nan(top[i][h], value);
    });
    bool has_nan = false;
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        for (int distance = 1; distance <= 2; distance *= 2) {
          top[i][h] = maximum_or_nan(top[i][h], __shfl_xor_sync(kAllLanes, top[i][h], distance));
        }
        has_nan = has_nan || top[i][h] != top[i][h];
      }
    }
    if (has_nan) {
      for_each_result<true>(sums, real.again(), [&](int i, int h, float value, int column, bool is_real) {
        const bool is_top = (value == top[i][h]) | ((value != value) & (top[i][h] != top[i][h]));
        place[i][h] = is_real & is_top ? column : place[i][h];
      });
    } else {
      for_each_result<true>(sums, real.again(), [&](int i, int h, float value, int column, bool is_real) {
        place[i][h] = is_real & (value == top[i][h]) ? column : place[i][h];
      });
    }
    const int lane = computed_here(static_cast<int>(threadIdx.x)) % 4;
    Best found{0.0f, -1};
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        int lowest = place[i][h] + 2 * lane;
        for (int distance = 1; distance <= 2; distance *= 2) {
          const int other = __shfl_xor_sync(kAllLanes, lowest, distance);
          lowest = other < lowest ? other : lowest;
        }
        if (lane == 2 * i + h) found = {top[i][h], lowest < kNone ? first + lowest : -1};
      }
    }
    return found;
  }
  /// The thread's row in the tile of the table.
  template <int kConsumer>
  static __device__ __forceinline__ int row() {
    const int thread = computed_here(static_cast<int>(threadIdx.x)) % kWarpgroup;
    return 64 * (kConsumer * kTiles + thread % 4 / 2) + sum_row(thread, thread % 2 * 2);
  }

  template <int kConsumer>
  __device__ __forceinline__ void consume() const {
    RingPlace place;
#pragma unroll 1
    for (int index = static_cast<int>(blockIdx.x); index < arguments.items; index += static_cast<int>(gridDim.x)) {
      const Item now = item(index);
      Best best{0.0f, -1};
#pragma unroll 1
      for (int pass = 0; pass < arguments.passes; ++pass) {
        const RealColumns<kColumns> real(arguments, now.sample, pass * kColumns);
        Sums sums = {};
        multiply_slices<kConsumer>(sums, place);
        const Best found = find_best(sums, real, pass * kColumns);
        if (before(found, best)) best = found;
      }
      const int entry = now.tile * TokenMaxProjectionMemory::kTableRows + row<kConsumer>();
      if (entry < arguments.vocabulary) {
        write_best(best, arguments.bias[entry], static_cast<std::int64_t>(now.sample) * arguments.vocabulary + entry,
                   arguments.encoding, arguments.argmax);
      }
    }
  }

  __device__ __forceinline__ void run() const {
    if (threadIdx.x == 0) {
      for (RingPlace place; place.buffer < kStages; ++place.buffer) {
        full(place).start(1);
        free(place).start(kConsumerThreads);
      }
      fence_barriers();
    }
    __syncthreads();
    if (threadIdx.x < kWarpgroup) {
      release_registers<24>();
      if (threadIdx.x == 0) load();
    } else {
      claim_registers<240>();
      if (threadIdx.x < 2 * kWarpgroup) {
        consume<0>();
      } else {
        consume<1>();
      }
    }
  }
};

template <int kColumns>
__global__ void __launch_bounds__(kThreads, 1) token_max_projection_hopper_kernel(const __grid_constant__ HopperArguments arguments) {
  TESSERA_ALIGNED_SHARED(shared);
  HopperBlock<kColumns>{arguments, shared}.run();
}

template <int kColumns>
Status start(const HopperArguments& arguments, void* stream) {
  return launch("token_max_projection forward", token_max_projection_hopper_kernel<kColumns>, dim3(persistent_blocks(arguments.items)),
                kThreads, TokenMaxProjectionMemory(kColumns).bytes(), stream, arguments);
}

}  // namespace

namespace TESSERA_DEVICE_NAMESPACE {

Status token_max_projection_forward_hopper(const TokenMaxProjectionForward& given, int positions, void* stream) {
  const TokenMaxProjectionProblem& problem = given.problem;
  HopperArguments arguments;
  const TileSource table{given.table, problem.width, problem.vocabulary, 1, 1, problem.width};
  const TileSource tokens{given.tokens,  problem.width, problem.positions, 1, problem.batch, problem.width, 0,
                          problem.positions * problem.width};
  if (Status status = make_tile_map(arguments.table, "token_max_projection", table, TokenMaxProjectionMemory::kTableRows); !status.ok()) {
    return status;
  }
  if (Status status = make_tile_map(arguments.tokens, "token_max_projection", tokens, positions); !status.ok()) return status;
  const auto pieces = [](std::int64_t whole, std::int64_t piece) { return static_cast<int>((whole + piece - 1) / piece); };
  arguments.batch = static_cast<int>(problem.batch);
  arguments.positions = static_cast<int>(problem.positions);
  arguments.vocabulary = static_cast<int>(problem.vocabulary);
  arguments.tiles = pieces(problem.vocabulary, TokenMaxProjectionMemory::kTableRows);
  arguments.items = arguments.batch * arguments.tiles;
  arguments.passes = pieces(problem.positions, positions);
  arguments.slices = pieces(problem.width, kTileColumns);
  arguments.mask = given.mask;
  arguments.bias = given.bias;
  arguments.encoding = given.encoding;
  arguments.argmax = given.argmax;
  if (positions == 80) return start<80>(arguments, stream);
  return positions == 128 ? start<128>(arguments, stream) : start<200>(arguments, stream);
}

}  // namespace TESSERA_DEVICE_NAMESPACE
}  // namespace tessera::kernels
