// Replaces the .cu files in a build without CUDA, so that callers need no #if.
#include "kernels/activation/activation.h"
#include "kernels/adamw/adamw.h"
#include "kernels/attention/attention.h"
#include "kernels/device/block_memory.h"
#include "kernels/flops_regularizer/flops_regularizer.h"
#include "kernels/gemm/gemm.h"
#include "kernels/linear_cross_entropy/linear_cross_entropy.h"
#include "kernels/max_similarity/max_similarity.h"
#include "kernels/residual_norm/residual_norm.h"
#include "kernels/roi_align/roi_align.h"
#include "kernels/sparsify_group/sparsify_group.h"
#include "kernels/text_pool/text_pool.h"
#include "kernels/token_contrast/token_contrast.h"
#include "kernels/token_max_projection/token_max_projection.h"

namespace tessera::kernels::cuda {
namespace {

Status missing(const char* kernel) {
  return Status::failure(std::string(kernel) +
                         ": this build has no CUDA kernels; configure with -DTESSERA_WITH_CUDA=ON");
}

}  // namespace

std::size_t block_memory(int) {
  return 0;
}
std::size_t activation_workspace(const ActivationProblem&) {
  return 0;
}
Status activation_forward(const ActivationForward&, void*) {
  return missing("activation");
}
Status activation_backward(const ActivationBackward&, void*) {
  return missing("activation");
}
Status adamw_update(const AdamWUpdate&, void*) {
  return missing("adamw");
}
bool has_attention() {
  return false;
}
Status attention_forward(const AttentionForward&, void*) {
  return missing("attention");
}
Status attention_backward(const AttentionBackward&, void*) {
  return missing("attention");
}
std::size_t sparsify_group_workspace(const SparsifyGroupProblem&, Pass) {
  return 0;
}
Status sparsify_group_forward(const SparsifyGroupForward&, void*) {
  return missing("sparsify_group");
}
Status sparsify_group_backward(const SparsifyGroupBackward&, void*) {
  return missing("sparsify_group");
}
std::size_t flops_workspace(const FlopsForward&) {
  return 0;
}
Status flops_forward(const FlopsForward&, void*) {
  return missing("flops_regularizer");
}
Status flops_backward(const FlopsBackward&, void*) {
  return missing("flops_regularizer");
}
bool has_gemm() {
  return false;
}
std::vector<std::string> gemm_algorithms(const GemmProblem&) {
  return {};
}
std::size_t gemm_workspace() {
  return 0;
}
Status gemm(const GemmCall&, void*) {
  return missing("gemm");
}
Status cross_entropy_tile(const CrossEntropyTile&, void*) {
  return missing("linear_cross_entropy");
}
std::size_t max_similarity_workspace(const MaxSimilarityProblem&, Pass) {
  return 0;
}
std::size_t max_similarity_block_memory(const MaxSimilarityProblem&) {
  return 0;
}
Status max_similarity_forward(const MaxSimilarityForward&, void*) {
  return missing("max_similarity");
}
Status max_similarity_backward(const MaxSimilarityBackward&, void*) {
  return missing("max_similarity");
}
std::size_t residual_norm_workspace(std::int64_t, std::int64_t) {
  return 0;
}
Status residual_norm_forward(const ResidualNormForward&, void*) {
  return missing("residual_norm");
}
Status residual_norm_backward(const ResidualNormBackward&, void*) {
  return missing("residual_norm");
}
Status roi_align_forward(const RoiAlignForward&, void*) {
  return missing("roi_align");
}
Status roi_align_backward(const RoiAlignBackward&, void*) {
  return missing("roi_align");
}
Status token_contrast_forward(const TokenContrastForward&, void*) {
  return missing("token_contrast");
}
Status token_contrast_backward(const TokenContrastBackward&, void*) {
  return missing("token_contrast");
}
Status token_max_projection_forward(const TokenMaxProjectionForward&, void*) {
  return missing("token_max_projection");
}
Status token_max_projection_backward(const TokenMaxProjectionBackward&, void*) {
  return missing("token_max_projection");
}
Status patch_softmax(const PatchSoftmax&, void*) {
  return missing("text_conditioned_pool");
}
Status patch_softmax_backward(const PatchSoftmaxBackward&, void*) {
  return missing("text_conditioned_pool");
}
Status pooled_pairs(const PooledPairs&, void*) {
  return missing("text_conditioned_pool");
}

}  // namespace tessera::kernels::cuda
