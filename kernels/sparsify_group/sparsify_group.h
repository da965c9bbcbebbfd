#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/parallel.h"
#include "kernels/status.h"
#include "kernels/types.h"

/// SPARC's "sparsify and group" (eq. 2-5 of the paper) as one operator, forward and backward. For each pair, token j
/// and patch k:
///   s_jk = t_j . v_k,   z = (s - min_k s) / (max_k s - min_k s),   kept = z where z >= threshold else 0,
///   a = kept / sum kept,   grouped_j = sum_k a_jk v_k.
/// A row with max - min <= 1e-6 * max(|min|, |max|) is flat: a = 1/P, and no gradient passes through a. If several
/// patches attain the minimum, they share its sub-gradient equally. The sub-gradient of the maximum is exactly zero,
/// because scaling all kept weights of a row has no effect after the normalization. In the softmax variant, a =
/// softmax_k(s / softmax_temperature).
///
/// The backward pass computes the similarities again, so only tiles of [B, L, P] are ever stored. Padding tokens are
/// never read. Their rows of `grouped`, `row_statistics`, `weights` and the gradient are set to zero.
namespace tessera::kernels {

enum class PatchWeights { kMinMax, kSoftmax };

struct SparsifyGroupProblem {
  std::int64_t batch = 0;              ///< B, may be 0
  std::int64_t tokens = 0;             ///< L, may be 0
  std::int64_t patches = 0;            ///< P, at least 1; on a GPU at most kMostPatchesOnGpu
  std::int64_t width = 0;              ///< D, at least 1; multiples of 8 with aligned rows are fastest
  DataType type = DataType::kFloat32;  ///< type of tokens, grouped and gradients; sums are always float32
  PatchWeights weights = PatchWeights::kMinMax;
  float threshold = 0.0f;            ///< in [0, 1]; the paper uses 1/P (`paper_threshold`), and 0 keeps everything
  float softmax_temperature = 1.0f;  ///< above 0; used by kSoftmax only
  bool tf32 = false;                 ///< on a GPU: multiply float32 in TensorFloat-32, with one product instead of three
  const char* configuration = nullptr;  ///< on a GPU: one of sparsify_group_configurations(); null if the kernel chooses
  std::size_t block_memory = 0;         ///< on a GPU: the shared memory that a block may use; 0 for all that it has
};

constexpr std::int64_t kMostPatchesOnGpu = 1024;

/// Returns the names of the GPU kernels' instantiations: tokens x patches of a block / bytes of a slice, and, for Hopper GPUs,
/// hopper/tokens x patches.
std::vector<std::string> sparsify_group_configurations();

/// Returns how many bytes of shared memory a block of the GPU kernels needs at least, for both passes. With more, it is faster. `patches`
/// is at most kMostPatchesOnGpu.
std::size_t sparsify_group_block_memory(std::int64_t patches, DataType type);

/// Returns 1/P, rounded once to float32. The comparison with the threshold requires this rounding.
inline float paper_threshold(std::int64_t patches) {
  return static_cast<float>(1.0 / static_cast<double>(patches));
}

/// The numbers that the forward pass keeps for the backward pass, for each token: the minimum, the maximum, and the sum
/// that normalizes the weights. With kMinMax, this sum is the sum of s - min over the kept patches. With kSoftmax, it
/// is the sum of exp((s - max) / temperature) over all patches.
constexpr std::int64_t kRowStatistics = 3;

struct SparsifyGroupForward {
  SparsifyGroupProblem problem;
  ConstRows text_tokens;                    ///< [B, L, D]
  ConstRows image_tokens;                   ///< [B, P, D]
  const std::uint8_t* text_mask = nullptr;  ///< [B, L] contiguous, non-zero for real tokens; null if all are real
  Rows grouped;                             ///< out [B, L, D]
  float* row_statistics = nullptr;  ///< out [B, L, kRowStatistics] contiguous; null if no backward pass follows
  float* weights = nullptr;         ///< out [B, L, P] contiguous, for inspection; null if not needed
  void* workspace = nullptr;        ///< sparsify_group_workspace() bytes
};

struct SparsifyGroupBackward {
  SparsifyGroupProblem problem;
  ConstRows text_tokens;
  ConstRows image_tokens;
  const std::uint8_t* text_mask = nullptr;
  ConstRows grad_grouped;                 ///< [B, L, D]
  /// From the forward pass on the same device. The rows of gradients must be aligned like those of tokens, or else, on a Hopper GPU,
  /// another kernel than in the forward pass may run, which may round similarities differently and then find no patch at the minimum.
  const float* row_statistics = nullptr;
  Rows grad_text_tokens;                  ///< out [B, L, D]; data is null if not needed
  Rows grad_image_tokens;                 ///< out [B, P, D]; data is null if not needed
  void* workspace = nullptr;
};

/// Returns a failure with a one-line message that names the first bad argument.
Status check(const SparsifyGroupForward& arguments);
Status check(const SparsifyGroupBackward& arguments);

namespace cpu {
/// Returns the size of the scratch memory in bytes, for all threads of `parallel`.
std::size_t sparsify_group_workspace(const SparsifyGroupProblem& problem, Pass pass, const Parallel& parallel = {});
Status sparsify_group_forward(const SparsifyGroupForward& arguments, const Parallel& parallel = {});
Status sparsify_group_backward(const SparsifyGroupBackward& arguments, const Parallel& parallel = {});
}  // namespace cpu

/// These functions run on the current device. All pointers are device pointers, and `stream` is a cudaStream_t. The
/// functions are asynchronous, so a failure that they return concerns only the arguments or the launch. `emulation`
/// runs the same source on the host (kernels/emulation), for tests.
namespace cuda {
std::size_t sparsify_group_workspace(const SparsifyGroupProblem& problem, Pass pass);
Status sparsify_group_forward(const SparsifyGroupForward& arguments, void* stream);
Status sparsify_group_backward(const SparsifyGroupBackward& arguments, void* stream);
}  // namespace cuda
namespace emulation {
std::size_t sparsify_group_workspace(const SparsifyGroupProblem& problem, Pass pass);
Status sparsify_group_forward(const SparsifyGroupForward& arguments, void* stream);
Status sparsify_group_backward(const SparsifyGroupBackward& arguments, void* stream);
}  // namespace emulation

}  // namespace tessera::kernels
