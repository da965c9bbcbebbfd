#pragma once

#include <string>

#include <ATen/core/Tensor.h>

#include "src/objectives/common/contrast_targets.h"
#include <tessera/features.h>
#include <tessera/objectives/contrastive_objective.h>

namespace tessera {

/// What a pairwise objective takes of the features of its two views: checked, in the type losses compute in (tokens as
/// PairWants::bfloat16_tokens says). All rows of a pair that does not take part are 0 (its text mask false) and receive
/// no gradient, whatever the towers gave for it.
struct PairFeatures {
  at::Tensor image_global;  // [B, D]
  at::Tensor text_global;   // [B, D]
  at::Tensor image_tokens;  // [B, P, D]
  at::Tensor text_tokens;   // [B, L, D], 0 at padding, which receives no gradient
  at::Tensor text_mask;     // [B, L] bool
  at::Tensor present;       // [B] bool, pairs that take part; undefined: all
  ContrastTargets targets;  // of the global batch

  at::ScalarType dtype() const;
};

/// Which of them an objective wants; the others stay undefined.
struct PairWants {
  bool image_global = false;
  bool text_global = false;
  bool image_tokens = false;
  bool text_tokens = false;
  bool same_width = true;  // image and text embeddings share D (not where the objective embeds patches itself)
  /// Tokens in bfloat16 stay so: the objective gives them to an operator whose sums are float32. False: they are widened.
  bool bfloat16_tokens = false;
};

/// Throws the UserError for features that the towers do not give: `name` is image_global, text_tokens or the like.
[[noreturn]] void refuse_missing_feature(const char* objective, const std::string& name);

/// Throws UserError where images have their own numbers of patches (TowerFeatures::grids), for objectives that take all patches of
/// a batch for real.
void refuse_own_shapes(const char* objective, const TowerFeatures& image);

/// The pairs that `settings` speak of. With skip_absent and mask_duplicates the ranks tell each other which of their
/// pairs take part and are duplicates. Throws UserError for what the towers do not give, and c10::Error "OBJECTIVE: TENSOR
/// must be [B, D] = [6, 8], got [5, 8]" for what does not fit: one batch size of at least 1, one width, at least one patch,
/// bool masks, one device.
PairFeatures pair_features(const Features& features, const char* objective, const ContrastSettings& settings,
                           const PairWants& wants, const ProcessGroup& group);

}  // namespace tessera
