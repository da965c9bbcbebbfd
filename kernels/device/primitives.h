#pragma once

// Warp and copy operations of the kernels. They are implemented in PTX on the GPU, and by kernels/emulation on the
// host.
#include "kernels/device/launch.h"

namespace tessera::kernels {
namespace {

constexpr unsigned kAllLanes = 0xffffffffu;
constexpr float kInfinity = __builtin_huge_valf();

/// A bfloat16 in memory. Arithmetic uses float32.
struct Bfloat16 {
  std::uint16_t bits;
};

__device__ __forceinline__ float bits_to_float(std::uint32_t bits) {
#if defined(TESSERA_CUDA_EMULATION)
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
#else
  return __uint_as_float(bits);
#endif
}
__device__ __forceinline__ std::uint32_t float_to_bits(float value) {
#if defined(TESSERA_CUDA_EMULATION)
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
#else
  return __float_as_uint(value);
#endif
}

__device__ __forceinline__ float to_float(float value) {
  return value;
}
__device__ __forceinline__ float to_float(Bfloat16 value) {
#if defined(TESSERA_CUDA_EMULATION)
  return bfloat16_to_float(value.bits);
#else
  return __uint_as_float(static_cast<unsigned>(value.bits) << 16);
#endif
}

template <class Element>
__device__ __forceinline__ Element from_float(float value);
template <>
__device__ __forceinline__ float from_float<float>(float value) {
  return value;
}
template <>
__device__ __forceinline__ Bfloat16 from_float<Bfloat16>(float value) {
#if defined(TESSERA_CUDA_EMULATION)
  return {float_to_bfloat16(value)};
#else
  std::uint16_t bits;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return {bits};
#endif
}

/// Returns two adjacent elements of bfloat16 in one word.
__device__ __forceinline__ std::uint32_t bfloat16_pair(float first, float second) {
#if defined(TESSERA_CUDA_EMULATION)
  return float_to_bfloat16(first) | static_cast<std::uint32_t>(float_to_bfloat16(second)) << 16;
#else
  std::uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  return pair;
#endif
}

/// kCount adjacent elements, which are loaded and stored as one word.
template <class Element, int kCount>
struct alignas(sizeof(Element) * kCount) Piece {
  Element values[kCount];
};

/// Returns the word at an address, which must be a multiple of the word's size. At any other address, a GPU stops, and
/// so does the emulation.
template <class Word>
__device__ __forceinline__ const Word& word_at(const void* address) {
#if defined(TESSERA_CUDA_EMULATION)
  emulation::require_alignment(address, alignof(Word));
#endif
  return *reinterpret_cast<const Word*>(address);
}
template <class Word>
__device__ __forceinline__ Word& word_at(void* address) {
  return const_cast<Word&>(word_at<Word>(static_cast<const void*>(address)));
}

__device__ __forceinline__ float warp_sum(float value) {
  for (int mask = 16; mask > 0; mask /= 2) value += __shfl_xor_sync(kAllLanes, value, mask);
  return value;
}
__device__ __forceinline__ float warp_minimum(float value) {
  for (int mask = 16; mask > 0; mask /= 2) value = fminf(value, __shfl_xor_sync(kAllLanes, value, mask));
  return value;
}
__device__ __forceinline__ float warp_maximum(float value) {
  for (int mask = 16; mask > 0; mask /= 2) value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, mask));
  return value;
}

/// Calls visit(lane) for each lane whose bit is set, in order. All lanes of the warp make all these calls.
template <class Visit>
__device__ __forceinline__ void for_each_lane(unsigned bits, Visit visit) {
  for (; bits != 0; bits &= bits - 1) visit(__ffs(static_cast<int>(bits)) - 1);
}

#if defined(TESSERA_CUDA_EMULATION)

inline void copy_async(void* to, const void* from, bool valid) {
  emulation::require_alignment(from, 16);
  emulation::copy_later(to, valid ? from : nullptr);
}
inline void commit_copies() {
  emulation::commit_copies();
}
template <int kGroupsLeft>
void wait_for_copies() {
  emulation::wait_for_copies(kGroupsLeft);
}

/// Returns the two elements of an 8 x 8 matrix that load_matrices() gives to the lane `lane`. rows(r) is the address of
/// the matrix's row r.
template <bool kTransposed, class RowOf>
std::uint32_t matrix_share(unsigned lane, RowOf rows) {
  std::uint16_t pair[2];
  for (unsigned i = 0; i < 2; ++i) {
    const unsigned row = kTransposed ? lane % 4 * 2 + i : lane / 4;
    const unsigned column = kTransposed ? lane / 4 : lane % 4 * 2 + i;
    std::memcpy(&pair[i], static_cast<const char*>(rows(row)) + 2 * column, 2);
  }
  return pair[0] | static_cast<std::uint32_t>(pair[1]) << 16;
}

template <bool kTransposed, int kMatrices>
void load_matrices(std::uint32_t (&to)[kMatrices], const void* row) {
  if (threadIdx.x % 32 < 8 * kMatrices) emulation::require_alignment(row, 16);
  const auto& rows = emulation::exchange(&row, sizeof(row));
  for (unsigned matrix = 0; matrix < kMatrices; ++matrix) {
    to[matrix] =
        matrix_share<kTransposed>(threadIdx.x % 32, [&](unsigned r) { return rows.get<const void*>(matrix * 8 + r); });
  }
}

struct MultiplyShare {
  std::uint32_t a[4], b[2];
};

/// Computes c[16, 8] += a[16, depth] b[depth, 8] with depth 8 kEach. A word holds kEach elements, which value(word, index) returns.
template <unsigned kEach, class Value>
void multiply_shares(float (&c)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2], const Value& value) {
  MultiplyShare mine;
  std::memcpy(mine.a, a, sizeof(a));
  std::memcpy(mine.b, b, sizeof(b));
  const auto& shares = emulation::exchange(&mine, sizeof(mine));
  const unsigned lane = threadIdx.x % 32;
  for (unsigned i = 0; i < 4; ++i) {
    const unsigned row = lane / 4, column = lane % 4 * 2 + i % 2, lower = i / 2;  // c[i] belongs to row + 8 * lower
    for (unsigned k = 0; k < 8 * kEach; ++k) {
      const unsigned word = k / (4 * kEach), of_lane = k % (4 * kEach) / kEach;
      c[i] += value(shares.get<MultiplyShare>(row * 4 + of_lane).a[lower + word * 2], k % kEach) *
              value(shares.get<MultiplyShare>(column * 4 + of_lane).b[word], k % kEach);
    }
  }
}

inline void multiply_bfloat16(float (&c)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
  multiply_shares<2>(c, a, b, [](std::uint32_t pair, unsigned upper) {
    return bfloat16_to_float(static_cast<std::uint16_t>(upper != 0 ? pair >> 16 : pair));
  });
}
inline void multiply_tf32(float (&c)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
  multiply_shares<1>(c, a, b, [](std::uint32_t bits, unsigned) { return bits_to_float(bits & 0xffffe000u); });
}

#else

__device__ __forceinline__ unsigned shared_address(const void* pointer) {
  return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

/// Starts copying 16 bytes from global to shared memory in the background. If `valid` is false, copies zeros instead.
__device__ __forceinline__ void copy_async(void* to, const void* from, bool valid) {
  const int bytes = valid ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from), "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void commit_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
/// Waits until at most kGroupsLeft of this thread's committed groups are still pending.
template <int kGroupsLeft>
__device__ __forceinline__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kGroupsLeft) : "memory");
}

/// Loads two or four 8 x 8 matrices of 16-bit elements. Lane 8 m + r passes the address of row r of matrix m.
template <bool kTransposed>
__device__ __forceinline__ void load_matrices(std::uint32_t (&to)[4], const void* row) {
  const unsigned address = shared_address(row);
  if constexpr (kTransposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(address)
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(address)
                 : "memory");
  }
}
template <bool kTransposed>
__device__ __forceinline__ void load_matrices(std::uint32_t (&to)[2], const void* row) {
  const unsigned address = shared_address(row);
  if constexpr (kTransposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                 : "=r"(to[0]), "=r"(to[1])
                 : "r"(address)
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                 : "=r"(to[0]), "=r"(to[1])
                 : "r"(address)
                 : "memory");
  }
}

/// Computes c[16, 8] += a[16, 16] b[16, 8] on a tensor core, with float32 sums.
__device__ __forceinline__ void multiply_bfloat16(float (&c)[4], const std::uint32_t (&a)[4],
                                                  const std::uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/// Computes c[16, 8] += a[16, 8] b[8, 8] of TensorFloat-32 numbers on a tensor core, with float32 sums. TensorFloat-32 is float32 with 10
/// explicit bits of mantissa; the 13 lower bits are ignored.
__device__ __forceinline__ void multiply_tf32(float (&c)[4], const std::uint32_t (&a)[4],
                                              const std::uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

#endif

}  // namespace
}  // namespace tessera::kernels
