#pragma once

#include <cstdint>
#include <functional>

#include <ATen/core/Tensor.h>

namespace tessera {

/// Parameters of text-conditioned pooling (FLAIR, arXiv 2412.03561, section 3.2): weights and biases [D] of three LayerNorms (one each for
/// queries, keys and values), the projections of torch's MultiheadAttention, and options of the attention.
struct TextPoolParameters {
  at::Tensor query_norm_weight, query_norm_bias, key_norm_weight, key_norm_bias, value_norm_weight, value_norm_bias;
  at::Tensor in_weight;   // [3 D, D], the rows for queries, keys and values
  at::Tensor in_bias;     // [3 D]
  at::Tensor out_weight;  // [D, D]
  at::Tensor out_bias;    // [D]
  std::int64_t heads = 8;
  bool zero_token = true;  // whether to append a zero vector to the projected keys and to the projected values
};

/// Pools each image's tokens for each query by multi-head attention.
/// image_tokens [B, P, D]  floating, P at least 1
/// queries      [B, Q, D] (each image's own) or [Q, D] (the same for all images)
/// returns      [B, Q, D]  not normalized; the weights [B, heads, Q, P] are never stored
/// Throws c10::Error naming the tensor whose shape, type or device is wrong.
at::Tensor text_conditioned_pool(const at::Tensor& image_tokens, const at::Tensor& queries,
                                 const TextPoolParameters& parameters);

/// For each of n images, the C texts that the image is compared with.
struct ConditionedPairs {
  at::Tensor texts;   // int64 [n, C], row indices into the texts
  at::Tensor labels;  // int8 [n, C]: 1 for the image's own text, -1 for another image's text, 0 for no pair (the text is ignored)
};
/// A function that returns the pairs of `count` consecutive images, the first with index `first`. The loss calls the function for a few
/// images at a time. Each further backward pass over a retained graph calls the function again and must get the same pairs.
using PairsOfImages = std::function<ConditionedPairs(std::int64_t first, std::int64_t count)>;

/// FLAIR's conditioned sigmoid loss (eq. 4): the sum over pairs (image i, text t) of -log sigmoid(label z) with z =
/// scale cos(v(i|t), t) + bias, where v(i|t) is image i pooled for text t.
/// image_tokens [B, P, D]  float32 or float64 (narrower types are widened); texts and parameters are converted to the same type. With
///                         bfloat16 tokens, the operands of all products with patches and pairs are rounded to bfloat16
/// texts        [M, D]     embeddings, not normalized
/// scale, bias  []         1/temperature and bias
/// Each of a CPU's threads stores pooled vectors and attention weights for some of an image's pairs at a time. A GPU stores them for
/// several images at a time, at most 256 MiB of each unless a single image needs more. If gradients are needed, the forward pass computes
/// them together with the loss, so that no product is computed twice, and keeps them until the backward pass. The gradients take one tensor
/// as large as image_tokens, two as large as texts, and the parameters' gradients. During the forward pass, each thread has its own sums of
/// all these gradients except that of image_tokens. On a CPU, each image is computed by one thread, so the result is the same in every run
/// with the same number of threads. On a GPU, the gradients of texts differ by rounding between runs unless LibTorch's deterministic
/// algorithms are on. Sums are float32 or better. Differentiable once. Throws c10::Error naming the tensor whose shape, type or device is
/// wrong.
at::Tensor text_conditioned_loss(const at::Tensor& image_tokens, const at::Tensor& texts, const at::Tensor& scale,
                                 const at::Tensor& bias, const TextPoolParameters& parameters,
                                 const PairsOfImages& pairs);

}  // namespace tessera
