#pragma once

#include <optional>
#include <string>

#include <ATen/core/Tensor.h>

#include <tessera/config/fields.h>

namespace tessera {

/// How similarities are turned into weights (SPARC, eq. 2-4, and the ablations of Table 8).
struct SparsifySettings {
  std::string weights = "minmax";
  std::optional<double> threshold = std::nullopt;
  bool sparsify = true;
  double softmax_temperature = 1.0;

  /// Returns the threshold below which min-max weights become 0, for images with `patches` patches.
  double threshold_for(std::int64_t patches) const {
    if (!sparsify) return 0.0;
    return threshold.value_or(1.0 / static_cast<double>(patches));
  }
};

template <class Visitor>
void fields(Visitor& v, SparsifySettings& s) {
  v("weights", s.weights, "how similarities are turned into weights", config::one_of({"minmax", "softmax"}));
  v("threshold", s.threshold, "min-max weights below it become 0; null: 1 / the number of patches", config::in_range(0.0, 1.0));
  v("sparsify", s.sparsify, "false: set the threshold to 0");
  v("softmax_temperature", s.softmax_temperature, "with weights: softmax, divides the similarities", config::above(0.0));
}

/// Groups patch embeddings by caption tokens (SPARC, eq. 2-5): s = t . v; z = (s - min) / (max - min) over patches;
/// weights below the threshold become 0; the rest is normalized to sum 1; each token gets the weighted sum of the
/// patches.
/// text_tokens   [B, L, D]  not normalized; any floating-point type
/// image_tokens  [B, P, D]  same device; P at least 1
/// text_mask     [B, L]     bool, true = real token; padding rows give zeros and receive no gradient, even if they
///                          are NaN
/// returns       [B, L, D]  each real row is a convex combination of that image's patches, in the wider of the tokens' two types
/// A flat row (max - min <= 1e-6 max(|min|, |max|)) has weights 1/P and passes no gradient through them. Patches that
/// tie at the minimum or maximum share its gradient equally.
///
/// float32 and bfloat16 use fused kernels (kernels/sparsify_group): forward and backward store only tiles of [B, L, P],
/// sums are float32, and the backward pass keeps only the inputs and three numbers per token. float16 computes as
/// float32. On a GPU, float32 is multiplied on tensor cores: as three products in TensorFloat-32, whose error is that of
/// float32, or as one if LibTorch's setting allows TensorFloat-32 (training.tf32). float64, and more patches than a GPU's
/// kernels accept (1,024, or fewer with little shared memory), use tensor operations that autograd can differentiate any
/// number of times. Autocast has no effect: tokens are used in the type in which they are passed.
/// Throws c10::Error naming the tensor if shapes, types or devices do not fit. Differentiable in both token tensors;
/// with the fused kernels only once. In Python: torch.ops.tessera.sparsify_group, after torch.ops.load_library of
/// libtessera_ops.so.
at::Tensor sparsify_group(const at::Tensor& text_tokens, const at::Tensor& image_tokens, const at::Tensor& text_mask,
                          const SparsifySettings& settings);

/// Returns the weights [B, L, P] that sparsify_group uses, without gradient; 0 at padding. For inspection.
at::Tensor sparsify_weights(const at::Tensor& text_tokens, const at::Tensor& image_tokens, const at::Tensor& text_mask,
                            const SparsifySettings& settings);

}  // namespace tessera
