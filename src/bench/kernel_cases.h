#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <tessera/bench/kernel_bench.h>

namespace tessera::bench {

/// One pass of an operator on a kernel and of its composition. Each call allocates its own outputs and scratch memory
/// and gives them up, as an operator in training does.
struct KernelCase {
  std::string kernel, pass, shape;
  at::ScalarType dtype;
  double flops, bytes;
  std::function<void()> run, composed;
  // What memory is measured on: for a backward pass the forward pass and it, since what is kept between the two counts.
  std::function<void()> run_from_start, composed_from_start;
};

/// SPARC's grouping written with LibTorch's operators, as Listing 1 of the paper does: text [B, L, D], image [B, P, D].
at::Tensor composed_sparsify_group(const at::Tensor& text, const at::Tensor& image);
/// sum_k (mean_i x_ik)^2 of [N, V].
at::Tensor composed_flops_regularizer(const at::Tensor& encoding);

/// FILIP's similarities of patches [B, P, D] with tokens [C, L, D], written with LibTorch's operators: (i2t, t2i) [B,
/// C].
std::pair<at::Tensor, at::Tensor> composed_max_similarity(const at::Tensor& patches, const at::Tensor& tokens);

/// Attention of SPARO's slots written with LibTorch's operators, as the paper's appendix 0.A does: every token is projected
/// to every slot's key, which is its value too. tokens [B, N, d], queries [L, D], weight [L D, d], bias [L D] -> [B, L, D].
at::Tensor composed_slot_attention(const at::Tensor& tokens, const at::Tensor& queries, const at::Tensor& weight,
                                   const at::Tensor& bias);

/// STAIR's token projection written with LibTorch's operators, holding every position's products: tokens [B, N, w],
/// table [V, w], bias [V] -> [B, V].
at::Tensor composed_token_max_projection(const at::Tensor& tokens, const at::Tensor& table, const at::Tensor& bias);

/// Mean cross-entropy of a linear layer written with LibTorch's operators, holding the logits: hidden [T, D],
/// weight [V, D], targets [T].
at::Tensor composed_linear_cross_entropy(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& targets);

/// Mean cross-entropy with a soft target, holding the logits and the target: ids [T, n], no two of a row equal, and
/// their weights [T, n].
at::Tensor composed_linear_soft_cross_entropy(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& ids,
                                              const at::Tensor& weights);

/// Forward and backward.
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
