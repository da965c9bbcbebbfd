#pragma once

#include <ATen/core/Tensor.h>

namespace tessera {

/// What slot_attention() takes, for L = K g slots of which g share a key and value projection; slot l has projection
/// l / g.
struct SlotAttentionInputs {
  at::Tensor tokens;        // [B, N, d] float32, float64 or a narrower type
  at::Tensor mask;          // [B, N] bool, true = real token; undefined: all real
  at::Tensor queries;       // [K, g, D] learned, one per slot
  at::Tensor key_weight;    // [K, D, d]
  at::Tensor value_weight;  // [K, E, d]; the same tensor as key_weight where values are keys
  at::Tensor value_bias;    // [K, E]; undefined: none
};

struct SlotAttentionOutputs {
  at::Tensor heads;      // [B, L, E], each slot's weighted sum of its values; 0 for a row without a real token
  at::Tensor attention;  // [B, L, N] float32 (float64 for float64); rows sum to 1, or are 0 without a real token
};

/// Cross-attention of learned queries over tokens, each slot with keys and values of its own (SPARO, Vani et al. 2024,
/// eq. 1 and appendix 0.A):
///   attention(l, n) = softmax over real n of q_l . (K_l x_n) / sqrt(D)    heads(l) = sum_n attention(l, n) (V_l x_n + c_l)
/// A bias of the keys adds the same to all scores of a slot and drops out of the softmax, so there is none.
///
/// Keys and values are linear in the tokens, so the products can be folded: the scores are x_n . (K_l^T q_l), and heads
/// V_l (sum_n attention(l, n) x_n) + c_l. That takes 2 N L d + L d E multiply-adds a sample instead of the N K d (D + E)
/// (N K d D where values are keys) of projecting every token first, and no [B, L, N, D] is ever there: what is kept for
/// the backward pass are tokens, weights and attention. Where many slots share a projection, projecting first is less
/// work; the form with fewer multiply-adds is taken.
///
/// Padding may hold anything, NaN too: it has attention 0 and receives no gradient. Products run in autocast's type
/// where autocast is on, otherwise in the tokens'; the softmax is float32 or better. Differentiable any number of times.
/// Throws c10::Error naming the tensor if shapes do not fit. Notes what folding saves (AvoidedFlops).
SlotAttentionOutputs slot_attention(const SlotAttentionInputs& inputs);

}  // namespace tessera
