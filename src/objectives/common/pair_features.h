#pragma once

#include <ATen/core/Tensor.h>

#include <tessera/features.h>

namespace tessera {

/// What a pairwise objective takes of the features of `image` and `caption`: checked, in the type losses compute in.
struct PairFeatures {
  at::Tensor image_global;  // [B, D]
  at::Tensor text_global;   // [B, D]
  at::Tensor image_tokens;  // [B, P, D]
  at::Tensor text_tokens;   // [B, L, D], 0 at padding, which receives no gradient
  at::Tensor text_mask;     // [B, L] bool

  at::ScalarType dtype() const;
};

/// Which of them an objective wants; the others stay undefined.
struct PairWants {
  bool image_global = false;
  bool text_global = false;
  bool image_tokens = false;
  bool text_tokens = false;
  bool same_width = true;  // image and text embeddings share D (not where the objective embeds patches itself)
};

/// Throws c10::Error "OBJECTIVE: TENSOR must be [B, D] = [6, 8], got [5, 8]" for what is missing or does not fit: one
/// batch size of at least 1, one width, at least one patch, a bool mask, one device.
PairFeatures pair_features(const Features& features, const char* objective, const PairWants& wants);

}  // namespace tessera
