#pragma once

// Reads and writes arrays that are too large for the caches in words of 16 bytes.
#include "kernels/device/primitives.h"

namespace tessera::kernels {
namespace {

/// 16 bytes of adjacent elements: four float32 or eight bfloat16. The bytes stay packed in four registers until element() unpacks one. (The
/// compiler would give each bfloat16 of a Piece its own register, and then keep fewer loads in flight.)
struct alignas(16) Word {
  std::uint32_t parts[4];
};
template <class Element>
constexpr int kWordElements = static_cast<int>(sizeof(Word) / sizeof(Element));

template <class Element>
__device__ __forceinline__ float element(const Word& word, int index) {
  return bits_to_float(word.parts[index]);
}
template <>
__device__ __forceinline__ float element<Bfloat16>(const Word& word, int index) {
  const std::uint32_t pair = word.parts[index / 2];
  return to_float(Bfloat16{static_cast<std::uint16_t>(index % 2 == 0 ? pair : pair >> 16)});
}

__device__ __forceinline__ void set_element(Word& word, int index, float value) {
  word.parts[index] = float_to_bits(value);
}
__device__ __forceinline__ void set_element(Word& word, int index, Bfloat16 value) {
  const std::uint32_t shift = index % 2 * 16, other = word.parts[index / 2] & (0xffff0000u >> shift);
  word.parts[index / 2] = other | static_cast<std::uint32_t>(value.bits) << shift;
}

/// Returns the word at an address, which must be a multiple of 16. The word does not stay in the first-level cache, so the kernel should
/// read it only once, and it may not write it.
__device__ __forceinline__ Word load_once(const void* address) {
#if defined(TESSERA_CUDA_EMULATION)
  return word_at<Word>(address);
#else
  Word word;
  asm("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
      : "=r"(word.parts[0]), "=r"(word.parts[1]), "=r"(word.parts[2]), "=r"(word.parts[3])
      : "l"(address));
  return word;
#endif
}
/// Returns the word at an address, which must be a multiple of 16. Other threads may read it from the first-level cache. The kernel may not
/// write it.
__device__ __forceinline__ Word load_often(const void* address) {
#if defined(TESSERA_CUDA_EMULATION)
  return word_at<Word>(address);
#else
  const uint4 word = __ldg(static_cast<const uint4*>(address));
  return {{word.x, word.y, word.z, word.w}};
#endif
}
/// Writes a word of global memory, which the kernel does not read, in one access. (The compiler may write the parts of a Word one by one,
/// even those of a uint4.)
__device__ __forceinline__ void store_word(void* address, const Word& word) {
#if defined(TESSERA_CUDA_EMULATION)
  word_at<Word>(address) = word;
#else
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(address), "r"(word.parts[0]), "r"(word.parts[1]), "r"(word.parts[2]),
               "r"(word.parts[3]));
#endif
}
/// Returns the word at an address of global memory, which the kernel reads once and may write afterwards.
__device__ __forceinline__ Word load_before_store(const void* address) {
#if defined(TESSERA_CUDA_EMULATION)
  return word_at<Word>(address);
#else
  const uint4 word = __ldcs(static_cast<const uint4*>(address));
  return {{word.x, word.y, word.z, word.w}};
#endif
}
/// Writes a word that the kernel does not read again.
__device__ __forceinline__ void store_once(void* address, const Word& word) {
#if defined(TESSERA_CUDA_EMULATION)
  word_at<Word>(address) = word;
#else
  __stcs(static_cast<uint4*>(address), make_uint4(word.parts[0], word.parts[1], word.parts[2], word.parts[3]));
#endif
}
/// The same for 8 bytes, at an address that is a multiple of 8.
__device__ __forceinline__ void store_once(void* address, std::uint32_t first, std::uint32_t second) {
#if defined(TESSERA_CUDA_EMULATION)
  word_at<Piece<std::uint32_t, 2>>(address) = {{first, second}};
#else
  __stcs(static_cast<uint2*>(address), make_uint2(first, second));
#endif
}

}  // namespace
}  // namespace tessera::kernels
