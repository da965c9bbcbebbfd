#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/parallel.h"
#include "kernels/status.h"
#include "kernels/types.h"

/// Attention of short sequences to themselves: of at most 256 tokens, in heads of width 64 or 80, in bfloat16.
///   output = softmax(scale * query key^T) value, for each sequence and head
/// A causal token attends only to itself and to the sequence's earlier tokens. One tensor qkv [rows, 3, heads, width] has the queries, keys
/// and values, and one tensor of the same shape receives their gradients. Weights are float32 and rounded to bfloat16 before they are
/// multiplied by values or gradients. A sequence never reads another one's rows. Nothing is added by atomics, so results are the same in
/// every run.
///
/// These kernels run on Hopper GPUs only (compute capability 9.0). src/models/self_attention.cpp has other implementations. The kernel for
/// the CPU is for inference: float32, heads of any width, no statistics.
namespace tessera::kernels {

inline constexpr std::int64_t kMostAttentionTokens = 256;
constexpr bool is_attention_head_width(std::int64_t width) {
  return width == 64 || width == 80;
}

struct AttentionProblem {
  std::int64_t sequences = 0;  ///< may be 0
  std::int64_t rows = 0;       ///< tokens of all sequences
  std::int64_t longest = 0;    ///< no sequence has more tokens
  std::int64_t heads = 0;
  std::int64_t head_width = 64;
  DataType type = DataType::kBfloat16;
  const std::int32_t* offsets = nullptr;  ///< [sequences + 1], the first row of each sequence, and rows; null: each has `longest` rows
  bool causal = false;
  float scale = 1.0f;
  const char* configuration = nullptr;  ///< a name that attention_configurations() returns; null: the smallest one that fits
};

struct AttentionForward {
  AttentionProblem problem;
  const void* qkv = nullptr;
  void* output = nullptr;       ///< out [rows, heads, width]
  float* statistics = nullptr;  ///< out [heads, rows]: the base-2 logarithm of the sum of exp(score), for the backward pass
};

struct AttentionBackward {
  AttentionProblem problem;
  const void* qkv = nullptr;
  const void* output = nullptr;
  const float* statistics = nullptr;
  const void* grad_output = nullptr;
  void* grad_qkv = nullptr;  ///< out
};

/// Returns a failure with a one-line message that names the first bad argument.
Status check(const AttentionForward& arguments);
Status check(const AttentionBackward& arguments);

/// Returns the configurations of the kernels that can compute the problem, the smallest one first. None if they cannot.
std::vector<std::string> attention_configurations(const AttentionProblem& problem, Pass pass);

/// These functions run on the current device, asynchronously on `stream` (a cudaStream_t).
namespace cuda {
/// Whether the current device can run the kernels.
bool has_attention();
Status attention_forward(const AttentionForward& arguments, void* stream);
Status attention_backward(const AttentionBackward& arguments, void* stream);
}  // namespace cuda
namespace cpu {
/// Whether this machine can run the kernel, which needs AVX2.
bool has_attention();
/// A token's output has the same bits however many other sequences there are. Fails without AVX2, and for types other than float32.
Status attention_forward(const AttentionForward& arguments, const Parallel& parallel);
}  // namespace cpu
namespace emulation {
bool has_attention();
Status attention_forward(const AttentionForward& arguments, void* stream);
Status attention_backward(const AttentionBackward& arguments, void* stream);
}  // namespace emulation

}  // namespace tessera::kernels
