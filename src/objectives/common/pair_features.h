#pragma once

#include <string>

#include <ATen/core/Tensor.h>

#include "src/objectives/common/contrast_targets.h"
#include <tessera/features.h>
#include <tessera/objectives/contrastive_objective.h>

namespace tessera {

/// The features of two views that a pairwise objective uses, checked and converted to the losses' computing type (for tokens see
/// PairWants::bfloat16_tokens). All rows of an absent pair are 0 (its text mask false) and get no gradient, whatever the towers
/// output for it.
struct PairFeatures {
  at::Tensor image_global;  // [B, D]
  at::Tensor text_global;   // [B, D]
  at::Tensor image_tokens;  // [B, P, D]
  at::Tensor text_tokens;   // [B, L, D], 0 at padding, which gets no gradient
  at::Tensor text_mask;     // [B, L] bool
  at::Tensor present;       // [B] bool, pairs that are present; undefined: all
  ContrastTargets targets;  // of the global batch

  at::ScalarType dtype() const;
};

/// Which features an objective needs; the others stay undefined.
struct PairWants {
  bool image_global = false;
  bool text_global = false;
  bool image_tokens = false;
  bool text_tokens = false;
  bool same_width = true;  // image and text embeddings share D (false if the objective embeds patches itself)
  /// Keep tokens in bfloat16, because the objective passes them to an operator that sums in float32. False: widen them.
  bool bfloat16_tokens = false;
};

/// Throws the UserError for a feature that a tower does not output; `name` is image_global, text_tokens or the like.
[[noreturn]] void refuse_missing_feature(const char* objective, const std::string& name);

/// Throws UserError if images have different numbers of patches (TowerFeatures::grids), for objectives that treat all patches of a
/// batch as real.
void refuse_own_shapes(const char* objective, const TowerFeatures& image);

/// Returns the pairs of the views that `settings` name. With skip_absent and mask_duplicates the ranks exchange which of their
/// pairs are present and which are duplicates. Throws UserError if a tower does not output a feature, and c10::Error "OBJECTIVE:
/// TENSOR must be [B, D] = [6, 8], got [5, 8]" unless there are one batch size of at least 1, one width, at least one patch, bool
/// masks and one device.
PairFeatures pair_features(const Features& features, const char* objective, const ContrastSettings& settings,
                           const PairWants& wants, const ProcessGroup& group);

}  // namespace tessera
