#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "src/models/attention.h"
#include "src/ops/tuning.h"

namespace tessera {

/// Sequences whose tokens attend to those of their own sequence. One tensor holds the queries, keys and values of all tokens.
struct SelfAttentionProblem {
  at::Tensor qkv;              // [T, 3, heads, d], contiguous
  at::Tensor offsets;          // int32 [sequences + 1], the first token of each sequence, and T; undefined: each has `longest` tokens
  std::int64_t sequences = 0;  // may contain no tokens if there are offsets
  std::int64_t longest = 0;    // no sequence has more tokens
  bool causal = false;         // whether a token attends only to itself and to the sequence's earlier tokens
};

/// The output [T, heads, d], and numbers of each token and head that the backward pass needs.
using SelfAttentionResult = std::array<at::Tensor, 2>;

/// An implementation of self-attention whose backward pass writes the gradients of queries, keys and values into one tensor, so that no
/// pass has to concatenate them. The option is what follows "/" in a configuration such as "cudnn/1,0"; it may be empty.
struct AttentionEngine {
  std::string_view name;
  bool on_cpu;  // whether it also computes on the CPU, where LibTorch's attention replaces the others
  /// Returns the options with which the engine can compute the problem, none if it cannot. An engine without options returns an empty one.
  std::vector<std::string> (*options)(const SelfAttentionProblem& problem);
  SelfAttentionResult (*forward)(const SelfAttentionProblem& problem, const std::string& option);
  void (*backward)(const SelfAttentionProblem& problem, const std::string& option, const SelfAttentionResult& result,
                   const at::Tensor& grad_output, const at::Tensor& grad_qkv);
};

/// Returns the configurations that can compute the problem: engines with their options, and LibTorch's attention, "libtorch".
std::vector<std::string> attention_configurations(const SelfAttentionProblem& problem);

/// Returns the key under which a tuning table (src/ops/tuning.h) names a configuration for both passes of the problem.
TuningKey attention_tuning_key(const SelfAttentionProblem& problem);

/// Returns the problem for qkv and mask as self_attention() takes them; nothing if the mask is explicit.
std::optional<SelfAttentionProblem> attention_problem(const at::Tensor& qkv, std::int64_t heads, const AttentionMask& mask);

/// Computes multi-head attention of tokens to each other. qkv [B, N, 3 w], or packed [T, 3 w], has the queries, keys and values of each
/// token one after another; returns [B, N, w] or [T, w]. Equals attend() of the three parts, which also computes it (LibTorch's
/// attention) unless the tuning table names another configuration for the problem. The result then has no second derivatives
/// (c10::Error).
at::Tensor self_attention(const at::Tensor& qkv, std::int64_t heads, const AttentionMask& mask);

}  // namespace tessera
