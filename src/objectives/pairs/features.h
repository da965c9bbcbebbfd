#pragma once

#include <string>

#include <ATen/core/Tensor.h>

#include "src/objectives/pairs/relation.h"
#include <tessera/features.h>
#include <tessera/objectives/caption_settings.h>
#include <tessera/objectives/contrastive_objective.h>

namespace tessera {

/// The features of two views that an objective on pairs uses, checked and converted to the dtype in which losses are computed (for tokens
/// see PairWants::bfloat16_tokens). The towers' outputs for absent pairs and texts are ignored: their rows are 0 and get no gradient, and
/// the text mask of an absent pair is false.
struct PairFeatures {
  at::Tensor image_global;  // [B, D]
  at::Tensor text_global;   // [B, D]; of several captions per image [B, K, D]
  at::Tensor image_tokens;  // [B, P, D]
  at::Tensor text_tokens;   // [B, L, D]; padding is 0 and gets no gradient
  at::Tensor text_mask;     // [B, L] bool
  at::Tensor present;       // bool [B], true for present pairs; undefined if all are present. Of captions bool [B, K], always defined
  PairRelation relation;    // of the global batch

  at::ScalarType dtype() const;
};

/// Which features an objective needs; the others stay undefined. An objective on captions always gets `text_global`, and no text tokens.
struct PairWants {
  bool image_global = false;
  bool text_global = false;
  bool image_tokens = false;
  bool text_tokens = false;
  bool same_width = true;  // image and text features must have the same width; false if the objective maps patches to embeddings itself
  /// True: bfloat16 tokens stay bfloat16, because the objective passes them to an operator that sums in float32. False: bfloat16 tokens are
  /// converted to float32.
  bool bfloat16_tokens = false;
};

/// Throws the UserError for a feature that a tower does not output. `name` is image_global, text_tokens or another feature.
[[noreturn]] void refuse_missing_feature(const char* objective, const std::string& name);

/// Returns the pairs of the image view and the text view that are named in `settings`. With skip_absent, the ranks tell each other which of
/// their pairs are present. With mask_duplicates, they tell each other which pairs are duplicates. All features must have the same batch
/// size (at least 1), the same width and the same device; images must have at least one patch, and their number of patches must be the same
/// (TowerFeatures::grids); masks must be bool. Otherwise throws c10::Error, such as "OBJECTIVE: TENSOR must be [B, D] = [6, 8], got
/// [5, 8]". Throws UserError if a tower does not output a feature.
PairFeatures pair_features(const Features& features, const char* objective, const ContrastSettings& settings,
                           const PairWants& wants, const ProcessGroup& group);

/// Like pair_features(), for several captions per image. If the text view has one caption per image, K is 1.
PairFeatures caption_features(const Features& features, const char* objective, const CaptionSettings& settings,
                              const PairWants& wants, const ProcessGroup& group);

/// Returns the embeddings [B, D] of another image view, checked like image_global of `pairs`, which must have a text_global.
at::Tensor image_embeddings(const TowerFeatures& image, const char* objective, const PairFeatures& pairs);

}  // namespace tessera
