#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tools/bench/kernel_bench.h"

namespace tessera::bench {

/// One pass of an operator that has a kernel, and the same pass composed of LibTorch's operators. Each call allocates and frees outputs
/// and scratch memory, as in training.
struct KernelCase {
  std::string kernel, pass, shape;
  at::ScalarType dtype;
  double flops, bytes;
  std::function<void()> run, composed;
  // Functions for measuring memory. For a backward pass they also run the forward pass, because the measurement must include the memory
  // that is kept between the two passes.
  std::function<void()> run_from_start, composed_from_start;
};

/// Computes SPARC's grouping with LibTorch's operators, as in Listing 1 of the paper: text [B, L, D], image [B, P, D].
at::Tensor composed_sparsify_group(const at::Tensor& text, const at::Tensor& image);
/// Returns sum_k (mean_i x_ik)^2 of x [N, V].
at::Tensor composed_flops_regularizer(const at::Tensor& encoding);

/// Computes FILIP's similarities of patches [B, P, D] with tokens [C, L, D] with LibTorch's operators. Returns (i2t, t2i), each [B, C].
std::pair<at::Tensor, at::Tensor> composed_max_similarity(const at::Tensor& patches, const at::Tensor& tokens);

/// Computes the attention of SPARO's slots with LibTorch's operators, as in the paper's appendix 0.A. Every token is projected to a key
/// for every slot; the key is also the value. tokens [B, N, d], queries [L, D], weight [L D, d], bias [L D] -> [B, L, D].
at::Tensor composed_slot_attention(const at::Tensor& tokens, const at::Tensor& queries, const at::Tensor& weight,
                                   const at::Tensor& bias);

/// Computes STAIR's token projection with LibTorch's operators, which store the products of all positions: tokens [B, N, w], table [V, w],
/// bias [V] -> [B, V].
at::Tensor composed_token_max_projection(const at::Tensor& tokens, const at::Tensor& table, const at::Tensor& bias);

/// Computes the mean cross-entropy of a linear layer with LibTorch's operators, which store the logits: hidden [T, D], weight [V, D],
/// targets [T].
at::Tensor composed_linear_cross_entropy(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& targets);

/// Computes the mean cross-entropy of a linear layer with soft targets, and stores the logits and the dense targets. The `ids` [T, n] of
/// a row are distinct; `weights` are [T, n].
at::Tensor composed_linear_soft_cross_entropy(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& ids,
                                              const at::Tensor& weights);

/// Computes SPARC's contrast of tokens with LibTorch's operators: queries and keys [B, L, D], of any length, scale [] -> [B, L].
at::Tensor composed_token_contrast(const at::Tensor& queries, const at::Tensor& keys, const at::Tensor& scale);

/// Each of these functions but linear_map_cases() returns one case for the forward pass and one for the backward pass. For
/// flops_regularizer, which returns one
/// row as the gradient of all rows, two more cases write all rows and add the row to a dense gradient.
std::vector<KernelCase> sparsify_group_cases(const GroupShape& shape, const at::Device& device, at::ScalarType dtype);
std::vector<KernelCase> token_contrast_cases(const ContrastShape& shape, const at::Device& device, at::ScalarType dtype);
std::vector<KernelCase> flops_regularizer_cases(const EncodingShape& shape, const at::Device& device,
                                                at::ScalarType dtype);
std::vector<KernelCase> slot_attention_cases(const SlotShape& shape, const at::Device& device, at::ScalarType dtype);
std::vector<KernelCase> token_max_projection_cases(const ProjectionShape& shape, const at::Device& device,
                                                   at::ScalarType dtype);
/// For each configuration of attention but LibTorch's, with which it is compared.
std::vector<KernelCase> self_attention_cases(const AttentionShape& shape, const at::Device& device, at::ScalarType dtype);
std::vector<KernelCase> linear_cross_entropy_cases(const CrossEntropyShape& shape, const at::Device& device,
                                                   at::ScalarType dtype);
/// The products of an MLP's two maps, I -> O with GELU and O -> I, that are computed together with something else: the first map with GELU,
/// the gradient of the second map's input with that of GELU and of the first bias, and the gradients of the first map's parameters.
std::vector<KernelCase> linear_map_cases(const MapShape& shape, const at::Device& device, at::ScalarType dtype);
std::vector<KernelCase> max_similarity_cases(const GroupShape& shape, const at::Device& device, at::ScalarType dtype);
/// Returns a case for AdamW's update with clipping, on parameters whose bfloat16 copies the kernel also writes. The composed update scales
/// the gradients in a pass of its own, and writes no copies.
std::vector<KernelCase> adamw_cases(const UpdateShape& shape, const at::Device& device);

}  // namespace tessera::bench
