#pragma once

#include <ATen/core/Tensor.h>

namespace tessera {

/// Inputs of slot_attention() for L = K g slots. Each group of g slots shares a key and value projection: slot l uses projection l / g.
struct SlotAttentionInputs {
  at::Tensor tokens;        // [B, N, d] float32, float64 or a narrower type
  at::Tensor mask;          // [B, N] bool, true for real tokens; undefined if all are real
  at::Tensor queries;       // [K, g, D], learned, one query per slot
  at::Tensor key_weight;    // [K, D, d]
  at::Tensor value_weight;  // [K, E, d]; the same tensor as key_weight if the keys are also the values
  at::Tensor value_bias;    // [K, E]; undefined: none
};

struct SlotAttentionOutputs {
  at::Tensor heads;      // [B, L, E], each slot's weighted sum of its values; 0 for a sample without a real token
  at::Tensor attention;  // [B, L, N] float32 (float64 for float64); rows sum to 1, or are 0 if there is no real token
};

/// Cross-attention of learned queries over tokens, where each slot has its own keys and values (SPARO, Vani et al.
/// 2024, eq. 1 and appendix 0.A):
///   attention(l, n) = softmax over real n of q_l . (K_l x_n) / sqrt(D)    heads(l) = sum_n attention(l, n) (V_l x_n + c_l)
/// A key bias would add the same to all scores of a slot and drop out of the softmax, so there is none.
///
/// Keys and values are linear in the tokens, so the products can be folded: the scores are x_n . (K_l^T q_l), and the
/// heads are V_l (sum_n attention(l, n) x_n) + c_l. Folding takes 2 N L d + L d E multiply-adds per sample. Projecting
/// every token first takes N K d (D + E), or N K d D if the keys are also the values. Folding also never stores
/// [B, L, N, D]: the backward pass keeps only tokens, weights and attention. When many slots share a projection, projecting first is less
/// work; the function uses the form with fewer multiply-adds.
///
/// Padding has attention 0 and receives no gradient, and its values do not matter, even if they are NaN. Products use
/// autocast's type when autocast is on, otherwise the type of the tokens; the softmax is float32 or better.
/// Differentiable any number of times. Throws c10::Error naming the tensor if shapes do not fit. Records the work that
/// folding saves (AvoidedFlops).
SlotAttentionOutputs slot_attention(const SlotAttentionInputs& inputs);

}  // namespace tessera
