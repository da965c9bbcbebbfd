#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <tessera/bench/kernel_bench.h>

namespace tessera::bench {

/// One pass of an operator with a kernel and of its composed version. Each call allocates its outputs and scratch memory and frees
/// them, as an operator in training does.
struct KernelCase {
  std::string kernel, pass, shape;
  at::ScalarType dtype;
  double flops, bytes;
  std::function<void()> run, composed;
  // Memory is measured on these. For a backward pass they include the forward pass, because memory kept between the two counts.
  std::function<void()> run_from_start, composed_from_start;
};

/// SPARC's grouping composed of LibTorch's operators, as in Listing 1 of the paper: text [B, L, D], image [B, P, D].
at::Tensor composed_sparsify_group(const at::Tensor& text, const at::Tensor& image);
/// Returns sum_k (mean_i x_ik)^2 of x [N, V].
at::Tensor composed_flops_regularizer(const at::Tensor& encoding);

/// FILIP's similarities of patches [B, P, D] with tokens [C, L, D], composed of LibTorch's operators: (i2t, t2i) [B, C].
std::pair<at::Tensor, at::Tensor> composed_max_similarity(const at::Tensor& patches, const at::Tensor& tokens);

/// Attention of SPARO's slots composed of LibTorch's operators, as in the paper's appendix 0.A: every token is projected to every
/// slot's key, which is also its value. tokens [B, N, d], queries [L, D], weight [L D, d], bias [L D] -> [B, L, D].
at::Tensor composed_slot_attention(const at::Tensor& tokens, const at::Tensor& queries, const at::Tensor& weight,
                                   const at::Tensor& bias);

/// STAIR's token projection composed of LibTorch's operators, with the products of every position in memory: tokens [B, N, w], table
/// [V, w], bias [V] -> [B, V].
at::Tensor composed_token_max_projection(const at::Tensor& tokens, const at::Tensor& table, const at::Tensor& bias);

/// Mean cross-entropy of a linear layer composed of LibTorch's operators, with the logits in memory: hidden [T, D], weight [V, D],
/// targets [T].
at::Tensor composed_linear_cross_entropy(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& targets);

/// Mean cross-entropy with soft targets, with logits and targets in memory: ids [T, n], distinct in each row, and their weights [T, n].
at::Tensor composed_linear_soft_cross_entropy(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& ids,
                                              const at::Tensor& weights);

/// These return a case for the forward and one for the backward pass.
std::vector<KernelCase> sparsify_group_cases(const GroupShape& shape, const at::Device& device, at::ScalarType dtype);
std::vector<KernelCase> flops_regularizer_cases(const EncodingShape& shape, const at::Device& device,
                                                at::ScalarType dtype);
std::vector<KernelCase> slot_attention_cases(const SlotShape& shape, const at::Device& device, at::ScalarType dtype);
std::vector<KernelCase> token_max_projection_cases(const ProjectionShape& shape, const at::Device& device,
                                                   at::ScalarType dtype);
std::vector<KernelCase> linear_cross_entropy_cases(const CrossEntropyShape& shape, const at::Device& device,
                                                   at::ScalarType dtype);
std::vector<KernelCase> max_similarity_cases(const GroupShape& shape, const at::Device& device, at::ScalarType dtype);

}  // namespace tessera::bench
