#pragma once

#include <optional>
#include <string>

#include <ATen/core/Tensor.h>

#include <tessera/config/fields.h>

namespace tessera {

/// How similarities become weights (SPARC, eq. 2-4, and the ablations of Table 8).
struct SparsifySettings {
  std::string weights = "minmax";
  std::optional<double> threshold;
  bool sparsify = true;
  double softmax_temperature = 1.0;

  /// The threshold on min-max weights among `patches` patches.
  double threshold_for(std::int64_t patches) const {
    if (!sparsify) return 0.0;
    return threshold.value_or(1.0 / static_cast<double>(patches));
  }
};

template <class Visitor>
void fields(Visitor& v, SparsifySettings& s) {
  v("weights", s.weights, "how similarities become weights", config::one_of({"minmax", "softmax"}));
  v("threshold", s.threshold, "min-max weights below it become 0; null means 1/P", config::in_range(0.0, 1.0));
  v("sparsify", s.sparsify, "false: threshold 0");
  v("softmax_temperature", s.softmax_temperature, "divides similarities, with weights softmax", config::above(0.0));
}

/// Groups patch embeddings by caption tokens (SPARC, eq. 2-5): s = t . v; z = (s - min) / (max - min) over patches;
/// weights below the threshold become 0; the rest is normalised to sum 1; each token gets the weighted sum of the
/// patches. text_tokens  [B, L, D]  not normalised image_tokens [B, P, D]  same device; P at least 1 text_mask    [B,
/// L]     bool, true = real token; padding rows give zeros and receive no gradient, even if they hold NaN returns [B,
/// L, D]  float32 (float64 for float64 tokens): each real row is a convex combination of that image's patches A flat
/// row (max - min <= 1e-6 max(|min|, |max|)) has weights 1/P and passes no gradient through them. Patches that tie at
/// the minimum or maximum share its gradient equally. Throws c10::Error naming the tensor if shapes or devices do not
/// fit. Differentiable in both token tensors.
at::Tensor sparsify_group(const at::Tensor& text_tokens, const at::Tensor& image_tokens, const at::Tensor& text_mask,
                          const SparsifySettings& settings);

/// The weights [B, L, P] that sparsify_group uses, without gradient; 0 at padding. For inspection.
at::Tensor sparsify_weights(const at::Tensor& text_tokens, const at::Tensor& image_tokens, const at::Tensor& text_mask,
                            const SparsifySettings& settings);

}  // namespace tessera
