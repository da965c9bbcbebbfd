#pragma once

#include <ATen/core/Tensor.h>

#include <tessera/features.h>

namespace tessera {

/// An interface of objectives that compare single patches with texts. It gives the weights or similarities with which the objective does
/// so, for heat maps.
class PatchWeights {
 public:
  virtual ~PatchWeights() = default;
  /// Returns what patch p of image b is to token l of text b, float [B, L, P], without gradient. `images` are features with tokens
  /// [B, P, W]. If by_token() is true, `texts` are features with tokens [B, L, W] and their mask; otherwise a text is compared as a whole,
  /// by its global embedding, and L is 1.
  virtual at::Tensor patch_weights(const TowerFeatures& images, const TowerFeatures& texts) const = 0;
  virtual bool by_token() const { return true; }
  /// Returns a sentence that says what the numbers are.
  virtual const char* describe_weights() const = 0;
};

}  // namespace tessera
