#pragma once

// The layout of an AdamWTable: the parts follow one another, and each begins at a multiple of 16 bytes.
#include "kernels/adamw/adamw.h"

namespace tessera::kernels {

/// The elements that a block updates.
inline constexpr std::int64_t kAdamWChunk = 8192;

/// Elements index * kAdamWChunk, ... of a tensor.
struct AdamWChunk {
  std::int32_t tensor, index;
};

/// The numbers of an update, which its first launch computes once for all blocks.
struct AdamWNumbers {
  float decay;      // learning rate * weight decay
  float step_size;  // learning rate / (1 - beta1^count)
  float root_scale;  // 1 / sqrt(1 - beta2^count)
  float rest1, rest2;  // 1 - beta1, 1 - beta2
  float epsilon;
  float factor;  // of the gradients
  int skipped;  // whether nothing may change
};

struct AdamWParts {
  AdamWTensor* tensors;
  const float** gradients;
  AdamWNumbers* numbers;
  AdamWChunk* chunks;
};

constexpr std::size_t rounded_to_word(std::size_t bytes) {
  return (bytes + 15) / 16 * 16;
}

/// The bytes in front of the chunks.
constexpr std::size_t adamw_chunks_offset(std::int64_t tensor_count) {
  const auto count = static_cast<std::size_t>(tensor_count);
  return rounded_to_word(count * sizeof(AdamWTensor)) + rounded_to_word(count * sizeof(float*)) + rounded_to_word(sizeof(AdamWNumbers));
}

inline AdamWParts adamw_parts(unsigned char* table, std::int64_t tensor_count) {
  const auto count = static_cast<std::size_t>(tensor_count);
  unsigned char* const gradients = table + rounded_to_word(count * sizeof(AdamWTensor));
  unsigned char* const numbers = gradients + rounded_to_word(count * sizeof(float*));
  return {reinterpret_cast<AdamWTensor*>(table), reinterpret_cast<const float**>(gradients), reinterpret_cast<AdamWNumbers*>(numbers),
          reinterpret_cast<AdamWChunk*>(table + adamw_chunks_offset(tensor_count))};
}

}  // namespace tessera::kernels
