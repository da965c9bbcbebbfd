#pragma once

#include "src/models/self_attention.h"

namespace tessera {

/// Self-attention by cuDNN, through the headers of cudnn-frontend; only in builds with TESSERA_WITH_CUDNN_FRONTEND. An option such as
/// "1,0" has the numbers of the execution plans of the forward and the backward pass, in the order of cuDNN's heuristics, which depends
/// on cuDNN's version. The backward pass is deterministic.
std::vector<std::string> cudnn_attention_options(const SelfAttentionProblem& problem);
SelfAttentionResult cudnn_attention_forward(const SelfAttentionProblem& problem, const std::string& option);
void cudnn_attention_backward(const SelfAttentionProblem& problem, const std::string& option, const SelfAttentionResult& result,
                              const at::Tensor& grad_output, const at::Tensor& grad_qkv);

}  // namespace tessera
