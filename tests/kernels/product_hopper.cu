// A matrix product, as an example of how kernels use kernels/device/hopper.h, and as a test of its instructions. A block computes 128 rows
// and kColumns columns: one warpgroup copies slices of 64 of the depth, and each of two others multiplies them for 64 rows.
#include "kernels/device/hopper.h"
#include "tests/kernels/product_hopper.h"

namespace tessera::kernels {
namespace {

using test::Operands;

constexpr int kBuffers = 2, kConsumers = 2, kThreads = (1 + kConsumers) * kWarpgroup, kSlice = kTileColumns;
constexpr int kTileBytes = 64 * kTileRowBytes;  // of 64 rows

struct ProductArguments {
  TileMap a, b, c;
  int slices;
  bool c_transposed;
};

template <int kColumns, Depth kA, Depth kB, Operands kOperands>
struct ProductBlock {
  static constexpr int kColumnTiles = (kColumns + 63) / 64;
  static constexpr int kABytes = kConsumers * kTileBytes;
  // Along rows, b is one tile of kColumns rows; otherwise it is a tile of 64 rows for each 64 columns.
  static constexpr int kBBytes = kB == Depth::kAlongRows ? kColumns * kTileRowBytes : kColumnTiles * kTileBytes;
  static constexpr int kBufferBytes = (kABytes + kBBytes + kTileAlignment - 1) / kTileAlignment * kTileAlignment;
  // A consumer's results, and before that its blocks of b.
  static constexpr int kResultBytes = kColumnTiles * kTileBytes;
  static constexpr int kBarriers = kBuffers * kBufferBytes + kConsumers * kResultBytes;
  static constexpr int kBytes = kBarriers + 2 * kBuffers * static_cast<int>(sizeof(Barrier));

  const ProductArguments& arguments;
  unsigned char* const shared;

  __device__ __forceinline__ unsigned char* buffer(int index) const { return shared + index * kBufferBytes; }
  __device__ __forceinline__ Barrier* full() const { return reinterpret_cast<Barrier*>(shared + kBarriers); }
  __device__ __forceinline__ Barrier* free() const { return full() + kBuffers; }

  __device__ __forceinline__ void produce() const {
    const int row = static_cast<int>(blockIdx.x) * kConsumers * 64, column = static_cast<int>(blockIdx.y) * kColumns;
    RingPlace place;
    for (int slice = 0; slice < arguments.slices; ++slice, place.next(kBuffers)) {
      Barrier& arrival = full()[place.buffer];
      unsigned char* const to = buffer(place.buffer);
      free()[place.buffer].wait(place.parity ^ 1u);
      arrival.expect(kABytes + kBBytes);
      if (kA == Depth::kAlongRows) {
        load_tile(to, arguments.a, arrival, {slice * kSlice, row, 0, 0}, Keep::kLong);
      } else {
        for (int i = 0; i < kConsumers; ++i)
          load_tile(to + i * kTileBytes, arguments.a, arrival, {row + 64 * i, slice * kSlice, 0, 0}, Keep::kLong);
      }
      if (kB == Depth::kAlongRows) {
        load_tile(to + kABytes, arguments.b, arrival, {slice * kSlice, column, 0, 0}, Keep::kLong);
      } else {
        for (int i = 0; i < kColumnTiles; ++i) {
          load_tile(to + kABytes + i * kTileBytes, arguments.b, arrival, {column + 64 * i, slice * kSlice, 0, 0}, Keep::kLong);
        }
      }
    }
  }

  /// Writes a slice of b as blocks of 8 x 8 elements: those of eight columns one after another.
  __device__ __forceinline__ void put_blocks(const unsigned char* b, unsigned char* blocks) const {
    for (int i = threadIdx.x % kWarpgroup; i < kColumns * kSlice; i += kWarpgroup) {
      const int column = i / kSlice, k = i % kSlice;
      const int from = kB == Depth::kAlongRows ? tile_offset(column, k) : column / 64 * kTileBytes + tile_offset(k, column % 64);
      const int inside = kB == Depth::kAlongRows ? column % 8 * 16 + k % 8 * 2 : k % 8 * 16 + column % 8 * 2;
      word_at<std::uint16_t>(blocks + (column / 8 * (kSlice / 8) + k / 8) * 128 + inside) = word_at<std::uint16_t>(b + from);
    }
  }

  /// Adds the products of a slice. `a` and `b` are the consumer's tiles, and `blocks` is its own memory.
  __device__ __forceinline__ void multiply_slice(float (&sums)[kColumns / 2], const unsigned char* a, const unsigned char* b,
                                                 unsigned char* blocks, bool adds) const {
    constexpr int kAStep = kA == Depth::kAlongRows ? kAlongRowsStep : kAcrossRowsStep;
    constexpr int kBStep = kOperands == Operands::kBlocks ? 256 : kB == Depth::kAlongRows ? kAlongRowsStep : kAcrossRowsStep;
    const Operand b_operand = kOperands == Operands::kBlocks ? block_operand(blocks, kSlice / 8 * 128, 128) : tile_operand(b, kTileBytes);
    if constexpr (kOperands == Operands::kBlocks) {
      wait_for_consumer();  // other warps may still multiply the previous blocks
      put_blocks(b, blocks);
      fence_for_copies();
      wait_for_consumer();
    }
    if constexpr (kOperands == Operands::kRegisters) {
      std::uint32_t words[4][4];
#pragma unroll
      for (int k = 0; k < 4; ++k) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int row = register_row(threadIdx.x, 2 * i), depth = 16 * k + register_depth(threadIdx.x, 2 * i);
          words[k][i] = word_at<std::uint32_t>(a + tile_offset(row, depth));
        }
      }
      fence_products(sums, words);
#pragma unroll
      for (int k = 0; k < 4; ++k) multiply<kB>(sums, words[k], b_operand.after(k * kBStep), adds || k > 0);
    } else {
      fence_products(sums);
#pragma unroll
      for (int k = 0; k < 4; ++k) multiply<kA, kB>(sums, tile_operand(a).after(k * kAStep), b_operand.after(k * kBStep), adds || k > 0);
    }
    commit_products();
    wait_for_products<0>(sums);
  }

  static __device__ __forceinline__ void wait_for_consumer() {
    if (threadIdx.x / kWarpgroup == 1) named_barrier<1>(kWarpgroup);
    if (threadIdx.x / kWarpgroup == 2) named_barrier<2>(kWarpgroup);
  }

  /// Writes the results to c, through the consumer's own memory.
  __device__ __forceinline__ void put_results(const float (&sums)[kColumns / 2], unsigned char* to, int row, int column) const {
    const int lane = threadIdx.x % 32, warp_row = threadIdx.x % kWarpgroup / 32 * 16;
    wait_for_consumer();  // the results overwrite the blocks
#pragma unroll
    for (int j = 0; j < kColumns; j += 16) {  // two blocks of 8 columns, each with two blocks of 8 rows; the last block may not exist
      std::uint32_t words[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const bool exists = j + 8 * (i / 2) < kColumns;
        words[i] = exists ? bfloat16_pair(sums[j / 2 + 2 * i], sums[j / 2 + 2 * i + 1]) : 0u;
      }
      const int block_row = warp_row + lane / 8 % 2 * 8, block_column = j + lane / 16 * 8, inside = lane % 8;
      if (arguments.c_transposed) {
        store_matrices_transposed(words, to + tile_offset(block_column + inside, block_row));
      } else {
        store_matrices(words, to + block_column / 64 * kTileBytes + tile_offset(block_row + inside, block_column % 64));
      }
    }
    fence_for_copies();
    wait_for_consumer();
    if (threadIdx.x % kWarpgroup != 0) return;
    if (arguments.c_transposed) {
      store_tile(arguments.c, to, {row, column, 0, 0});
    } else {
      for (int i = 0; i < kColumnTiles; ++i) store_tile(arguments.c, to + i * kTileBytes, {column + 64 * i, row, 0, 0});
    }
    commit_stores();
    wait_for_stores<0>();
  }

  __device__ __forceinline__ void consume(int consumer) const {
    unsigned char* const own = shared + kBuffers * kBufferBytes + consumer * kResultBytes;
    float sums[kColumns / 2];
    RingPlace place;
#pragma unroll 1
    for (int slice = 0; slice < arguments.slices; ++slice, place.next(kBuffers)) {
      full()[place.buffer].wait(place.parity);
      multiply_slice(sums, buffer(place.buffer) + consumer * kTileBytes, buffer(place.buffer) + kABytes, own, slice > 0);
      free()[place.buffer].arrive();
    }
    put_results(sums, own, (static_cast<int>(blockIdx.x) * kConsumers + consumer) * 64, static_cast<int>(blockIdx.y) * kColumns);
  }

  __device__ __forceinline__ void run() const {
    if (threadIdx.x == 0) {
      for (int i = 0; i < kBuffers; ++i) {
        full()[i].start(1);
        free()[i].start(kConsumers * kWarpgroup);
      }
      fence_barriers();
    }
    __syncthreads();
    const int group = static_cast<int>(threadIdx.x) / kWarpgroup;
    if (group == 0) {
      release_registers<40>();
      if (threadIdx.x == 0) produce();
    } else {
      claim_registers<232>();
      consume(group - 1);
    }
  }
};

template <int kColumns, Depth kA, Depth kB, Operands kOperands>
__global__ void __launch_bounds__(kThreads, 1) product_kernel(const __grid_constant__ ProductArguments arguments) {
  TESSERA_ALIGNED_SHARED(shared);
  ProductBlock<kColumns, kA, kB, kOperands>{arguments, shared}.run();
}

template <int kColumns, Depth kA, Depth kB, Operands kOperands>
Status start(const test::HopperProduct& given) {
  using Block = ProductBlock<kColumns, kA, kB, kOperands>;
  const auto matrix = [](const void* data, std::int64_t rows, std::int64_t columns) {
    return TileSource{data, columns, rows, 1, 1, columns, 0, 0};
  };
  const bool a_along = kA == Depth::kAlongRows, b_along = kB == Depth::kAlongRows;
  ProductArguments arguments;
  arguments.slices = static_cast<int>((given.depth + kSlice - 1) / kSlice);
  arguments.c_transposed = given.c_transposed;
  const char* const name = "hopper_product";
  const TileSource a = a_along ? matrix(given.a, given.rows, given.depth) : matrix(given.a, given.depth, given.rows);
  const TileSource b = b_along ? matrix(given.b, given.columns, given.depth) : matrix(given.b, given.depth, given.columns);
  const TileSource c = given.c_transposed ? matrix(given.c, given.columns, given.rows) : matrix(given.c, given.rows, given.columns);
  if (Status status = make_tile_map(arguments.a, name, a, a_along ? 64 * kConsumers : 64); !status.ok()) return status;
  if (Status status = make_tile_map(arguments.b, name, b, b_along ? kColumns : 64); !status.ok()) return status;
  if (Status status = make_tile_map(arguments.c, name, c, given.c_transposed ? kColumns : 64); !status.ok()) return status;
  const dim3 grid(static_cast<unsigned>((given.rows + 64 * kConsumers - 1) / (64 * kConsumers)),
                  static_cast<unsigned>((given.columns + kColumns - 1) / kColumns));
  return launch(name, product_kernel<kColumns, kA, kB, kOperands>, grid, kThreads, Block::kBytes, nullptr, arguments);
}

template <int kColumns>
Status start(const test::HopperProduct& given) {
  constexpr Depth kAlong = Depth::kAlongRows, kAcross = Depth::kAcrossRows;
  const bool a_along = given.a_depth == kAlong, b_along = given.b_depth == kAlong;
  switch (given.operands) {
    case Operands::kTiles:
      if (a_along) {
        return b_along ? start<kColumns, kAlong, kAlong, Operands::kTiles>(given)
                       : start<kColumns, kAlong, kAcross, Operands::kTiles>(given);
      }
      return b_along ? start<kColumns, kAcross, kAlong, Operands::kTiles>(given)
                     : start<kColumns, kAcross, kAcross, Operands::kTiles>(given);
    case Operands::kRegisters:
      return b_along ? start<kColumns, kAlong, kAlong, Operands::kRegisters>(given)
                     : start<kColumns, kAlong, kAcross, Operands::kRegisters>(given);
    default:
      return b_along ? start<kColumns, kAcross, kAlong, Operands::kBlocks>(given)
                     : start<kColumns, kAcross, kAcross, Operands::kBlocks>(given);
  }
}

}  // namespace

namespace TESSERA_DEVICE_NAMESPACE {

Status hopper_product(const test::HopperProduct& product, int block_columns) {
  return block_columns == 56 ? start<56>(product) : start<200>(product);
}

bool runs_hopper_kernels() {
#if defined(TESSERA_CUDA_EMULATION)
  return true;
#else
  int device = 0, major = 0, minor = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
  return major == 9 && minor == 0;
#endif
}

}  // namespace TESSERA_DEVICE_NAMESPACE
}  // namespace tessera::kernels
