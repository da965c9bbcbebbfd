#pragma once

#include <ATen/core/Tensor.h>

#include "src/objectives/common/caption_relation.h"
#include <tessera/features.h>
#include <tessera/objectives/caption_settings.h>

namespace tessera {

/// The features that an objective on images with K captions uses, checked and converted to the dtype in which losses are computed. An
/// absent caption is a row of 0 and gets no gradient. The text tower's output for it is ignored.
struct CaptionFeatures {
  at::Tensor image_global;  // [B, D]
  at::Tensor image_tokens;  // [B, P, D]
  at::Tensor text_global;   // [B, K, D]
  at::Tensor present;       // bool [B, K], true for this rank's present captions
  CaptionRelation relation;

  std::int64_t images() const { return present.size(0); }
  std::int64_t captions() const { return present.size(1); }
  at::ScalarType dtype() const { return text_global.scalar_type(); }
};

/// Which image features an objective needs; the others stay undefined.
struct CaptionWants {
  bool image_global = false;
  bool image_tokens = false;
};

/// Converts a tensor of an image view to the dtype in which losses are computed. `name` is image_global [B, D] or image_tokens [B, P, D].
/// Throws like caption_features() if the tensor does not match `text`, the captions' embeddings [B, K, D].
at::Tensor image_feature(const at::Tensor& tensor, const char* objective, const char* name, const at::Tensor& text);

/// Returns the features of the two views that `settings` name. If the text view has one caption per image, K is 1. Throws UserError
/// if the towers do not output a feature, and c10::Error "OBJECTIVE: TENSOR must be ..., got ..." if a tensor does not fit.
CaptionFeatures caption_features(const Features& features, const char* objective, const CaptionSettings& settings,
                                 const CaptionWants& wants, const ProcessGroup& group);

}  // namespace tessera
