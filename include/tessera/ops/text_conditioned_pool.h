#pragma once

#include <cstdint>
#include <functional>

#include <ATen/core/Tensor.h>

namespace tessera {

/// What text-conditioned pooling (FLAIR, arXiv 2412.03561, section 3.2) computes with: weights and biases of a LayerNorm each
/// for queries, keys and values [D], the projections of torch's MultiheadAttention, and how it attends.
struct TextPoolParameters {
  at::Tensor query_norm_weight, query_norm_bias, key_norm_weight, key_norm_bias, value_norm_weight, value_norm_bias;
  at::Tensor in_weight;   // [3 D, D], rows of queries, keys and values
  at::Tensor in_bias;     // [3 D]
  at::Tensor out_weight;  // [D, D]
  at::Tensor out_bias;    // [D]
  std::int64_t heads = 8;
  bool zero_token = true;  // one more key and value, all zeros, after the projections
};

/// What queries find in images: multi-head attention over each image's tokens.
/// image_tokens [B, P, D]  floating, P at least 1
/// queries      [B, Q, D] of each image's own, or [Q, D] for all images
/// returns      [B, Q, D]  not normalized; the weights [B, heads, Q, P] are never held
/// Throws c10::Error naming the tensor that does not fit.
at::Tensor text_conditioned_pool(const at::Tensor& image_tokens, const at::Tensor& queries,
                                 const TextPoolParameters& parameters);

/// Which texts some images are compared with.
struct ConditionedPairs {
  at::Tensor texts;   // int64 [n, C], rows of the texts
  at::Tensor labels;  // int8 [n, C]: 1 = the image's own, -1 = not, 0 = no pair, whatever text stands there
};
/// The pairs of images first, ..., first + count - 1. Asked for some images at a time, and once more where the backward
/// pass runs twice; must answer the same.
using PairsOfImages = std::function<ConditionedPairs(std::int64_t first, std::int64_t count)>;

/// FLAIR's conditioned sigmoid loss (eq. 4): the sum over pairs (image i, text t) of -log sigmoid(label z) with
/// z = scale cos(v(i|t), t) + bias, where v(i|t) is what text t finds in image i.
/// image_tokens [B, P, D]  float32 or float64 (narrower types are widened)
/// texts        [M, D]     embeddings, not normalized
/// scale, bias  []         1/temperature and bias
/// Neither a pooled vector per pair nor its weights are held, but for a tile of an image's pairs. Where a gradient is wanted,
/// the forward pass makes it along with the loss, so that no product is made twice; until the backward pass that takes the
/// memory of image_tokens once more, and of the texts once per thread. Each image belongs to one thread: the same result in
/// every run with one number of threads. Sums are float32 or better. Differentiable once. Throws c10::Error naming the
/// tensor that does not fit.
at::Tensor text_conditioned_loss(const at::Tensor& image_tokens, const at::Tensor& texts, const at::Tensor& scale,
                                 const at::Tensor& bias, const TextPoolParameters& parameters,
                                 const PairsOfImages& pairs);

}  // namespace tessera
