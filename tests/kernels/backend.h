#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/activation/activation.h"
#include "kernels/adamw/adamw.h"
#include "kernels/attention/attention.h"
#include "kernels/flops_regularizer/flops_regularizer.h"
#include "kernels/linear_cross_entropy/linear_cross_entropy.h"
#include "kernels/max_similarity/max_similarity.h"
#include "kernels/residual_norm/residual_norm.h"
#include "kernels/roi_align/roi_align.h"
#include "kernels/sparsify_group/sparsify_group.h"
#include "kernels/text_pool/text_pool.h"
#include "kernels/token_contrast/token_contrast.h"
#include "kernels/token_max_projection/token_max_projection.h"
#include "tests/support/test_name.h"

namespace tessera::kernels::test {

/// Memory that a kernel works on, with a margin on both sides that must not be written to. Its destructor checks the margins.
class Buffer {
 public:
  virtual ~Buffer() = default;
  virtual void* data() = 0;
  virtual std::vector<unsigned char> read() = 0;
};

inline void expect_ok(const Status& status) {
  EXPECT_TRUE(status.ok()) << status.message();
}

/// One implementation of all kernels.
struct Backend {
  std::string name;
  /// Whether the backend rounds weights to bfloat16 before it multiplies with them. Its bfloat16 results then contain rounding errors of
  /// the weights in addition to those of the outputs.
  bool rounds_weights = false;
  std::function<std::unique_ptr<Buffer>(const std::vector<unsigned char>& content)> allocate;
  std::function<Status(const AdamWUpdate&)> adamw_update;  // only on a GPU and its emulation
  std::function<Status(const AttentionForward&)> attention_forward;  // only on a GPU and its emulation
  std::function<Status(const AttentionBackward&)> attention_backward;
  std::function<std::size_t(const SparsifyGroupProblem&, Pass)> sparsify_group_workspace;
  std::function<Status(const SparsifyGroupForward&)> sparsify_group_forward;
  std::function<Status(const SparsifyGroupBackward&)> sparsify_group_backward;
  std::function<std::size_t(const FlopsForward&)> flops_workspace;
  std::function<Status(const FlopsForward&)> flops_forward;
  std::function<Status(const FlopsBackward&)> flops_backward;
  std::function<Status(const CrossEntropyTile&)> cross_entropy_tile;
  std::function<std::size_t(const MaxSimilarityProblem&, Pass)> max_similarity_workspace;
  std::function<Status(const MaxSimilarityForward&)> max_similarity_forward;
  std::function<Status(const MaxSimilarityBackward&)> max_similarity_backward;
  std::function<Status(const PatchSoftmax&)> patch_softmax;
  std::function<Status(const PatchSoftmaxBackward&)> patch_softmax_backward;
  std::function<Status(const PooledPairs&)> pooled_pairs;
  std::function<std::size_t(std::int64_t, std::int64_t)> residual_norm_workspace;  // only on a GPU and its emulation
  std::function<Status(const ResidualNormForward&)> residual_norm_forward;
  std::function<Status(const ResidualNormBackward&)> residual_norm_backward;
  std::function<std::size_t(const ActivationProblem&)> activation_workspace;  // only on a GPU and its emulation
  std::function<Status(const ActivationForward&)> activation_forward;
  std::function<Status(const ActivationBackward&)> activation_backward;
  std::function<Status(const RoiAlignForward&)> roi_align_forward;
  std::function<Status(const RoiAlignBackward&)> roi_align_backward;
  std::function<Status(const TokenContrastForward&)> token_contrast_forward;  // only on a GPU and its emulation
  std::function<Status(const TokenContrastBackward&)> token_contrast_backward;
  std::function<Status(const TokenMaxProjectionForward&)> token_max_projection_forward;
  std::function<Status(const TokenMaxProjectionBackward&)> token_max_projection_backward;
};

/// Returns the CPU backend. `instruction_set` is one of the names that use_instruction_set() accepts.
Backend cpu_backend(int threads = 2, const std::string& instruction_set = "");
Backend emulation_backend();
/// Returns the backend of the GPU, or null if there is no GPU.
std::unique_ptr<Backend> cuda_backend();

/// Returns the names of all backends: the CPU with the best instruction set, the CPU with each instruction set that this machine has, the
/// emulation of a GPU, and the GPU if there is one.
std::vector<std::string> backend_names();
/// Returns those of them that run CUDA sources.
std::vector<std::string> device_backend_names();
Backend backend(const std::string& name);

/// A fixture for tests that run on every backend. Each suite X needs INSTANTIATE_TEST_SUITE_P(On, X, testing::ValuesIn(backend_names()),
/// test_name<std::string>).
class KernelTest : public testing::TestWithParam<std::string> {
 protected:
  Backend on = backend(GetParam());
  bool on_cpu = GetParam().starts_with("cpu");

  /// Returns the types to test for a kernel that accepts bfloat16 only on a GPU.
  std::vector<DataType> types() const {
    return on_cpu ? std::vector{DataType::kFloat32} : std::vector{DataType::kFloat32, DataType::kBfloat16};
  }
};

/// Chooses the order in which the emulation runs threads.
void reverse_threads(bool reverse);
/// Returns the result of `body` while the emulation runs threads in reverse order.
template <class Body>
auto in_reverse_order(const Body& body) {
  reverse_threads(true);
  const auto result = body();
  reverse_threads(false);
  return result;
}

/// Converts float values to the bytes of `type`, and back.
std::vector<unsigned char> to_bytes(const std::vector<float>& values, DataType type);
std::vector<float> from_bytes(const std::vector<unsigned char>& bytes, DataType type);
/// Rounds the values to `type`.
std::vector<float> rounded(const std::vector<float>& values, DataType type);

/// Expects |ours - theirs| <= tolerance * (1 + max |theirs|). NaN never equals a number. On failure, prints the worst error as
/// a share of that bound.
void expect_close(const std::string& what, const std::vector<float>& ours, const std::vector<double>& theirs,
                  double tolerance);

}  // namespace tessera::kernels::test
