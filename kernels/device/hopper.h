#pragma once

// Instructions of Hopper GPUs (compute capability 9.0): the copy unit (TMA), barriers in shared memory that count arrivals and bytes, and
// the matrix products of a warpgroup (wgmma). Kernels use them only through this file; the sources that include it have names that end with
// _hopper.cu, are compiled for sm_90a only, and run on GPUs of compute capability 9.0 only. kernels/emulation/hopper_emulation.h lists the
// mistakes that the emulation detects.
//
// The usual structure of a kernel (tests/kernels/product_hopper.cu is a complete example):
//   - A block has one producer warpgroup and one or two consumer warpgroups, which share a ring of buffers (RingPlace). For each buffer
//   there
//     are two barriers. The producer waits for `free`, announces the bytes that arrive (Barrier::expect), and starts the copies
//     (load_tile).
//     The consumers wait for `full`, multiply, and arrive at `free`.
//   - A branch around a whole role decides which of the two a warpgroup executes. Other conditions around products, or indices of sums that
//   are
//     known only at run time, make ptxas wait after each product (warnings C7508 to C7520, which fail the build).
//   - The operands of a product are tiles as load_tile() writes them, blocks of 8 x 8 elements that threads write, or, for the operand a,
//     registers: the sums of a product, rounded to bfloat16, are the registers of the next one (hopper_layout.h).
//
// Limits: elements are bfloat16 and sums float32. A box of the copy unit has 64 columns and up to 256 rows. One block works alone (no
// clusters).
#include "kernels/device/hopper_layout.h"
#include "kernels/device/primitives.h"

#if defined(TESSERA_CUDA_EMULATION)
#include "kernels/emulation/hopper_emulation.h"
#define TESSERA_ALIGNED_SHARED(name) TESSERA_DYNAMIC_SHARED(name)
#else
#include <cuda.h>
/// Declares the dynamic shared memory, which begins at a multiple of kTileAlignment. A kernel uses either this or TESSERA_DYNAMIC_SHARED.
#define TESSERA_ALIGNED_SHARED(name) extern __shared__ __align__(1024) unsigned char name[]
#endif

namespace tessera::kernels {
namespace {

constexpr int kWarpgroup = 128;  // threads

// ---- Copies ----

/// Describes to the copy unit an array in global memory, and boxes of `box_rows` rows and 64 columns in it. A kernel takes it as (part of)
/// a parameter that is declared `const __grid_constant__`.
#if defined(TESSERA_CUDA_EMULATION)
struct TileMap {
  TileSource source;
  int box_rows = 0;
};
#else
struct TileMap {
  CUtensorMap map;
};
#endif

/// Makes a map on the host. Fails with a message that begins with `operation` if tile_fault() finds a fault.
inline Status make_tile_map(TileMap& map, const char* operation, const TileSource& source, int box_rows) {
  if (const char* const fault = tile_fault(source, box_rows)) return Status::failure(std::string(operation) + ": " + fault);
#if defined(TESSERA_CUDA_EMULATION)
  map = {source, box_rows};
#else
  static const auto encode = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found;
    const cudaError_t error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found);
    return error == cudaSuccess && found == cudaDriverEntryPointSuccess ? reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(function)
                                                                        : nullptr;
  }();
  const std::int64_t sizes[] = {source.columns, source.rows, source.heads, source.batches};
  const std::int64_t given[] = {1, source.row_stride, source.head_stride, source.batch_stride};
  cuuint64_t extents[4], strides[3];
  for (int i = 0; i < 4; ++i) extents[i] = static_cast<cuuint64_t>(sizes[i]);
  for (int i = 0; i < 3; ++i) {  // an index that takes one value gets the stride of an array without gaps
    const cuuint64_t gapless = (extents[i] * (i == 0 ? 2 : strides[i - 1]) + 15) / 16 * 16;
    strides[i] = sizes[i + 1] > 1 ? 2 * static_cast<cuuint64_t>(given[i + 1]) : gapless;
  }
  const cuuint32_t box[] = {kTileColumns, static_cast<cuuint32_t>(box_rows), 1, 1}, steps[] = {1, 1, 1, 1};
  if (encode == nullptr || encode(&map.map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 4, const_cast<void*>(source.data), extents, strides, box,
                                  steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) != CUDA_SUCCESS) {
    return Status::failure(std::string(operation) + ": the driver cannot describe an array to the copy unit");
  }
#endif
  return {};
}

/// How long the second-level cache should keep what a copy moves.
enum class Keep { kShort, kLong };

/// The place of a box's first element in an array. Indices may be negative or too large: elements outside of the array are read as zeros
/// and not written.
struct BoxPlace {
  int column, row, head, batch;
};

#if !defined(TESSERA_CUDA_EMULATION)
__device__ __forceinline__ std::uint64_t cache_policy(Keep keep) {
  std::uint64_t policy;
  if (keep == Keep::kLong) {
    asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
  } else {
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  }
  return policy;
}
#endif

/// A barrier in shared memory. A phase ends when `arrivals` threads have arrived and the announced bytes are there; then the next phase
/// begins. The first phase has the parity 0, the second one 1, the third one 0, ...
class alignas(8) Barrier {
 public:
#if defined(TESSERA_CUDA_EMULATION)
  void start(unsigned arrivals) {
    emulation::start_barrier(&state_, arrivals);
  }
  void arrive() {
    emulation::arrive(&state_, 0);
  }
  void expect(unsigned bytes) {
    emulation::arrive(&state_, bytes);
  }
  void wait(unsigned parity) {
    emulation::wait(&state_, parity);
  }
  std::uint64_t* state() {
    return &state_;
  }
#else
  /// One thread starts a barrier. Then it calls fence_barriers(), and then the block has a __syncthreads().
  __device__ __forceinline__ void start(unsigned arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address()), "r"(arrivals) : "memory");
  }
  __device__ __forceinline__ void arrive() {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(address()) : "memory");
  }
  /// Arrives, and announces that copies will bring `bytes` bytes: kTileRowBytes for each row of each box, also outside of the array.
  __device__ __forceinline__ void expect(unsigned bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address()), "r"(bytes) : "memory");
  }
  /// Waits for the end of the latest phase that has this parity. Before the end of the first phase, a wait for the parity 1 returns at
  /// once.
  __device__ __forceinline__ void wait(unsigned parity) {
    unsigned done = 0;
    while (done == 0) {
      asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
                   : "=r"(done)
                   : "r"(address()), "r"(parity)
                   : "memory");
    }
  }
  __device__ __forceinline__ unsigned address() const {
    return shared_address(&state_);
  }
#endif

 private:
  std::uint64_t state_;
};

/// Returns `value`, but the compiler does not know that. So what is computed from it is computed here, and does not occupy registers from
/// before a loop on.
__device__ __forceinline__ int computed_here(int value) {
#if !defined(TESSERA_CUDA_EMULATION)
  asm volatile("" : "+r"(value));
#endif
  return value;
}

/// The buffer of a ring that a thread uses next, and the parity of this round.
struct RingPlace {
  int buffer = 0;
  unsigned parity = 0;
  __device__ __forceinline__ void next(int buffers) {
    if (++buffer < buffers) return;
    buffer = 0;
    parity ^= 1u;
  }
};

#if defined(TESSERA_CUDA_EMULATION)

inline std::uint32_t shared_address(const void* pointer) {
  return emulation::shared_address(pointer);
}
inline void fence_barriers() {}
inline void load_tile(void* to, const TileMap& map, Barrier& barrier, const BoxPlace& place, Keep) {
  emulation::load_tile(to, map.source, map.box_rows, barrier.state(), {place.column, place.row, place.head, place.batch});
}
inline void store_tile(const TileMap& map, const void* from, const BoxPlace& place) {
  emulation::store_tile(map.source, map.box_rows, from, {place.column, place.row, place.head, place.batch});
}
inline void commit_stores() {
  emulation::commit_stores();
}
template <int kGroupsLeft>
void wait_for_stores() {
  emulation::wait_for_stores(kGroupsLeft);
}
inline void fence_for_copies() {}
template <int kId>
void named_barrier(unsigned threads) {
  emulation::named_barrier(kId, threads, true);
}
template <int kId>
void arrive_at_named_barrier(unsigned threads) {
  emulation::named_barrier(kId, threads, false);
}
template <int kRegisters>
void release_registers() {}
template <int kRegisters>
void claim_registers() {}
inline void store_matrices_transposed(const std::uint32_t (&words)[4], void* row) {
  emulation::require_alignment(row, 16);
  const auto& rows = emulation::exchange(&row, sizeof(row));
  std::uintptr_t addresses[32];
  for (unsigned lane = 0; lane < 32; ++lane) addresses[lane] = rows.get<std::uintptr_t>(lane);
  const unsigned lane = threadIdx.x % 32;
  for (unsigned matrix = 0; matrix < 4; ++matrix) {
    for (unsigned e = 0; e < 2; ++e) {
      const std::uint16_t half = static_cast<std::uint16_t>(words[matrix] >> (16 * e));
      std::memcpy(reinterpret_cast<char*>(addresses[8 * matrix + lane % 4 * 2 + e]) + 2 * (lane / 4), &half, 2);
    }
  }
}
inline void store_matrices(const std::uint32_t (&words)[4], void* row) {
  emulation::require_alignment(row, 16);
  const auto& rows = emulation::exchange(&row, sizeof(row));
  const unsigned lane = threadIdx.x % 32;
  for (unsigned matrix = 0; matrix < 4; ++matrix) {
    std::memcpy(reinterpret_cast<char*>(rows.get<std::uintptr_t>(8 * matrix + lane / 4)) + lane % 4 * 4, &words[matrix], 4);
  }
}

#else

/// Makes started barriers visible to the copy unit.
__device__ __forceinline__ void fence_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
/// One thread starts copying a box to a tile, or to rows of a tile: `to` is a multiple of 128 bytes, and of 1,024 for a tile's first row.
/// The copy is complete when the phase of the barrier ends. The rows hold nothing that may be read before.
__device__ __forceinline__ void load_tile(void* to, const TileMap& map, Barrier& barrier, const BoxPlace& place, Keep keep) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, {%2, %3, %4, %5}], [%6], "
      "%7;" ::"r"(shared_address(to)),
      "l"(&map), "r"(place.column), "r"(place.row), "r"(place.head), "r"(place.batch), "r"(barrier.address()), "l"(cache_policy(keep))
      : "memory");
}
/// One thread starts copying a tile to a box. Threads that wrote to the tile called fence_for_copies(), and then a barrier, before. The
/// tile must not change until this thread has called commit_stores() and wait_for_stores().
__device__ __forceinline__ void store_tile(const TileMap& map, const void* from, const BoxPlace& place) {
  asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.bulk_group.L2::cache_hint [%0, {%1, %2, %3, %4}], [%5], %6;" ::"l"(&map),
               "r"(place.column), "r"(place.row), "r"(place.head), "r"(place.batch), "r"(shared_address(from)),
               "l"(cache_policy(Keep::kShort))
               : "memory");
}
__device__ __forceinline__ void commit_stores() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
/// Waits until at most kGroupsLeft of this thread's committed groups still read shared memory. Each thread that stores tiles waits before
/// it ends.
template <int kGroupsLeft>
__device__ __forceinline__ void wait_for_stores() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kGroupsLeft) : "memory");
}
/// Makes what this thread wrote to shared memory visible to the copy unit and the tensor cores, once a barrier follows. Also needed between
/// a thread's own accesses to a buffer and the next copy into it, if the thread has written to it.
__device__ __forceinline__ void fence_for_copies() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
/// A barrier of `threads` threads (whole warps) of the block. kId is 1 to 15; __syncthreads() is the barrier 0.
template <int kId>
__device__ __forceinline__ void named_barrier(unsigned threads) {
  asm volatile("bar.sync %0, %1;" ::"n"(kId), "r"(threads) : "memory");
}
/// Arrives at a named barrier without waiting for the others.
template <int kId>
__device__ __forceinline__ void arrive_at_named_barrier(unsigned threads) {
  asm volatile("bar.arrive %0, %1;" ::"n"(kId), "r"(threads) : "memory");
}
/// Reduces or raises the number of registers of each thread of a warpgroup, to a multiple of 8 from 24 to 240. All its threads call this.
template <int kRegisters>
__device__ __forceinline__ void release_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void claim_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
/// Stores four 8 x 8 matrices of 16-bit elements, the inverse of load_matrices(). Lane 8 m + r passes the address of row r of matrix m.
__device__ __forceinline__ void store_matrices(const std::uint32_t (&words)[4], void* row) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared_address(row)), "r"(words[0]), "r"(words[1]),
               "r"(words[2]), "r"(words[3])
               : "memory");
}
/// The same, but what the lanes have as rows is stored as columns.
__device__ __forceinline__ void store_matrices_transposed(const std::uint32_t (&words)[4], void* row) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared_address(row)), "r"(words[0]),
               "r"(words[1]), "r"(words[2]), "r"(words[3])
               : "memory");
}

#endif

// ---- Products of a warpgroup ----

/// Returns a tile as an operand, from its first row and column on. Operand::after() moves it along the depth (kAlongRowsStep,
/// kAcrossRowsStep) or by multiples of 8 rows. If the depth is across rows and the side has more than 64 columns, the tile with the next 64
/// columns begins `next_tile_bytes` bytes later.
__device__ __forceinline__ Operand tile_operand(const void* tile, int next_tile_bytes = 16) {
  return make_operand(shared_address(tile), next_tile_bytes, 8 * kTileRowBytes, true);
}
/// Returns blocks of 8 x 8 elements as an operand. A block has eight rows of 16 bytes, one after another. The next block along the side
/// begins `side_bytes` bytes later, and the next block along the depth `depth_bytes` bytes later.
__device__ __forceinline__ Operand block_operand(const void* blocks, int side_bytes, int depth_bytes) {
  return make_operand(shared_address(blocks), depth_bytes, side_bytes, false);
}

// multiply() computes sums[64, N] += a[64, 16] b[16, N] in the background, for N = twice the number of sums; if `adds` is false, sums = a
// b. All threads of a warpgroup call it. sums[i] is the result in row sum_row() and column sum_column() (hopper_layout.h). Neither sums nor
// operands may be accessed until wait_for_products(). The order is: fence_products(), products, commit_products(), ...,
// wait_for_products(). Two habits save registers and time. If `adds` would be known only at run time, set the sums to 0 instead and always
// add: otherwise the sums occupy registers from the last round of an outer loop on. And a loop that has one product per round commits it in
// the loop, because ptxas can attach a commit only to a product in the same block of code.

#if defined(TESSERA_CUDA_EMULATION)

template <class... Arrays>
void fence_products(Arrays&...) {
  emulation::fence_products();
}
inline void commit_products() {
  emulation::commit_products();
}
template <int kGroupsLeft, class... Arrays>
void wait_for_products(Arrays&...) {
  emulation::wait_for_products(kGroupsLeft);
}
template <Depth kA, Depth kB, int kSums>
void multiply(float (&sums)[kSums], Operand a, Operand b, bool adds) {
  __syncwarp();
  emulation::multiply_later({sums, 2 * kSums, adds, false, kA, kB, a, b, {}});
}
template <Depth kB, int kSums>
void multiply(float (&sums)[kSums], const std::uint32_t (&a)[4], Operand b, bool adds) {
  const auto& shares = emulation::exchange(a, sizeof(a));
  emulation::Product product{sums, 2 * kSums, adds, true, Depth::kAlongRows, kB, {}, b, {}};
  struct Words {
    std::uint32_t of[4];
  };
  const unsigned lane = threadIdx.x % 32;
  for (unsigned lower = 0; lower < 2; ++lower) {
    for (unsigned k = 0; k < 8; ++k) product.words[lower][k] = shares.get<Words>(lane / 4 * 4 + k % 4).of[k / 4 * 2 + lower];
  }
  emulation::multiply_later(product);
}

#else

template <int kCount>
__device__ __forceinline__ void pin(float (&registers)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(registers[i])::"memory");
}
template <int kCount>
__device__ __forceinline__ void pin(std::uint32_t (&registers)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+r"(registers[i])::"memory");
}
template <class Element, int kRows, int kCount>
__device__ __forceinline__ void pin(Element (&registers)[kRows][kCount]) {
#pragma unroll
  for (int i = 0; i < kRows; ++i) pin(registers[i]);
}

/// Comes before the first product of a group. `arrays` are all arrays of sums and of operands in registers that the products of the group
/// use.
template <class... Arrays>
__device__ __forceinline__ void fence_products(Arrays&... arrays) {
  (pin(arrays), ...);
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void commit_products() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/// Waits until at most kGroupsLeft of the committed groups of products are still pending. `arrays` are the sums of the others.
template <int kGroupsLeft, class... Arrays>
__device__ __forceinline__ void wait_for_products(Arrays&... arrays) {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kGroupsLeft) : "memory");
  (pin(arrays), ...);
}

/// The instructions for each N. Each macro below lists the first or the next operands of the assembler's text ("%0, %1, ...") or of its
/// list of sums. N has N / 2 sums; the numbers of the other operands follow.
template <int kColumns>
struct WarpgroupProduct;

#define TESSERA_NAMES_2(tens) "%" #tens "0, %" #tens "1"
#define TESSERA_NAMES_4(tens) TESSERA_NAMES_2(tens) ", %" #tens "2, %" #tens "3"
#define TESSERA_NAMES_6(tens) TESSERA_NAMES_4(tens) ", %" #tens "4, %" #tens "5"
#define TESSERA_NAMES_8(tens) TESSERA_NAMES_6(tens) ", %" #tens "6, %" #tens "7"
#define TESSERA_NAMES_10(tens) TESSERA_NAMES_8(tens) ", %" #tens "8, %" #tens "9"
#define TESSERA_NAMES_20(tens, next) TESSERA_NAMES_10(tens) ", " TESSERA_NAMES_10(next)
#define TESSERA_NAMES_100 \
  TESSERA_NAMES_20(, 1) ", " TESSERA_NAMES_20(2, 3) ", " TESSERA_NAMES_20(4, 5) ", " TESSERA_NAMES_20(6, 7) ", " TESSERA_NAMES_20(8, 9)
#define TESSERA_SUMS_4(i) "+f"(sums[i]), "+f"(sums[i + 1]), "+f"(sums[i + 2]), "+f"(sums[i + 3])
#define TESSERA_SUMS_20(i) TESSERA_SUMS_4(i), TESSERA_SUMS_4(i + 4), TESSERA_SUMS_4(i + 8), TESSERA_SUMS_4(i + 12), TESSERA_SUMS_4(i + 16)
#define TESSERA_SUMS_100(i) \
  TESSERA_SUMS_20(i), TESSERA_SUMS_20(i + 20), TESSERA_SUMS_20(i + 40), TESSERA_SUMS_20(i + 60), TESSERA_SUMS_20(i + 80)

#define TESSERA_PRODUCT(columns, names, n0, n1, n2, n3, n4, n5, n6, ...)                                                                   \
  template <>                                                                                                                              \
  struct WarpgroupProduct<columns> {                                                                                                       \
    template <int kTransposedA, int kTransposedB>                                                                                          \
    static __device__ __forceinline__ void multiply(float (&sums)[columns / 2], std::uint64_t a, std::uint64_t b, int adds) {              \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #n2 ", 0;\nwgmma.mma_async.sync.aligned.m64n" #columns "k16.f32.bf16.bf16 {" names \
                   "}, %" #n0 ", %" #n1 ", p, 1, 1, %" #n3 ", %" #n4 ";\n}"                                                                \
                   : __VA_ARGS__                                                                                                           \
                   : "l"(a), "l"(b), "r"(adds), "n"(kTransposedA), "n"(kTransposedB));                                                     \
    }                                                                                                                                      \
    template <int kTransposedB>                                                                                                            \
    static __device__ __forceinline__ void multiply(float (&sums)[columns / 2], const std::uint32_t (&a)[4], std::uint64_t b, int adds) {  \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #n5 ", 0;\nwgmma.mma_async.sync.aligned.m64n" #columns "k16.f32.bf16.bf16 {" names \
                   "}, {%" #n0 ", %" #n1 ", %" #n2 ", %" #n3 "}, %" #n4 ", p, 1, 1, %" #n6 ";\n}"                                          \
                   : __VA_ARGS__                                                                                                           \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(adds), "n"(kTransposedB));                                    \
    }                                                                                                                                      \
  };
TESSERA_PRODUCT(32, TESSERA_NAMES_10() ", " TESSERA_NAMES_6(1), 16, 17, 18, 19, 20, 21, 22, TESSERA_SUMS_4(0), TESSERA_SUMS_4(4),
                TESSERA_SUMS_4(8), TESSERA_SUMS_4(12))
TESSERA_PRODUCT(56, TESSERA_NAMES_20(, 1) ", " TESSERA_NAMES_8(2), 28, 29, 30, 31, 32, 33, 34, TESSERA_SUMS_20(0), TESSERA_SUMS_4(20),
                TESSERA_SUMS_4(24))
TESSERA_PRODUCT(64, TESSERA_NAMES_20(, 1) ", " TESSERA_NAMES_10(2) ", " TESSERA_NAMES_2(3), 32, 33, 34, 35, 36, 37, 38, TESSERA_SUMS_20(0),
                TESSERA_SUMS_4(20), TESSERA_SUMS_4(24), TESSERA_SUMS_4(28))
TESSERA_PRODUCT(80, TESSERA_NAMES_20(, 1) ", " TESSERA_NAMES_20(2, 3), 40, 41, 42, 43, 44, 45, 46, TESSERA_SUMS_20(0), TESSERA_SUMS_20(20))
TESSERA_PRODUCT(112, TESSERA_NAMES_20(, 1) ", " TESSERA_NAMES_20(2, 3) ", " TESSERA_NAMES_10(4) ", " TESSERA_NAMES_6(5), 56, 57, 58, 59, 60,
                61, 62, TESSERA_SUMS_20(0), TESSERA_SUMS_20(20), TESSERA_SUMS_4(40), TESSERA_SUMS_4(44), TESSERA_SUMS_4(48),
                TESSERA_SUMS_4(52))
TESSERA_PRODUCT(128, TESSERA_NAMES_20(, 1) ", " TESSERA_NAMES_20(2, 3) ", " TESSERA_NAMES_20(4, 5) ", " TESSERA_NAMES_4(6), 64, 65, 66, 67,
                68, 69, 70, TESSERA_SUMS_20(0), TESSERA_SUMS_20(20), TESSERA_SUMS_20(40), TESSERA_SUMS_4(60))
TESSERA_PRODUCT(200, TESSERA_NAMES_100, 100, 101, 102, 103, 104, 105, 106, TESSERA_SUMS_100(0))
TESSERA_PRODUCT(256, TESSERA_NAMES_100 ", " TESSERA_NAMES_20(10, 11) ", " TESSERA_NAMES_8(12), 128, 129, 130, 131, 132, 133, 134,
                TESSERA_SUMS_100(0), TESSERA_SUMS_20(100), TESSERA_SUMS_4(120), TESSERA_SUMS_4(124))
#undef TESSERA_PRODUCT
#undef TESSERA_SUMS_100
#undef TESSERA_SUMS_20
#undef TESSERA_SUMS_4
#undef TESSERA_NAMES_100
#undef TESSERA_NAMES_20
#undef TESSERA_NAMES_10
#undef TESSERA_NAMES_8
#undef TESSERA_NAMES_6
#undef TESSERA_NAMES_4
#undef TESSERA_NAMES_2

template <Depth kA, Depth kB, int kSums>
__device__ __forceinline__ void multiply(float (&sums)[kSums], Operand a, Operand b, bool adds) {
  WarpgroupProduct<2 * kSums>::template multiply<kA == Depth::kAcrossRows, kB == Depth::kAcrossRows>(sums, a.bits, b.bits, adds ? 1 : 0);
}
/// The same with the operand a in registers (register_row(), register_depth()).
template <Depth kB, int kSums>
__device__ __forceinline__ void multiply(float (&sums)[kSums], const std::uint32_t (&a)[4], Operand b, bool adds) {
  WarpgroupProduct<2 * kSums>::template multiply<kB == Depth::kAcrossRows>(sums, a, b.bits, adds ? 1 : 0);
}

#endif

}  // namespace
}  // namespace tessera::kernels
