#pragma once

#include <ATen/core/Tensor.h>

#include "src/objectives/common/caption_relation.h"
#include <tessera/features.h>
#include <tessera/objectives/caption_settings.h>

namespace tessera {

/// What an objective on images with K captions takes of the features: checked, in the type losses compute in. A caption
/// that is absent is a row of 0 and receives no gradient, whatever the text tower gave for it.
struct CaptionFeatures {
  at::Tensor image_global;  // [B, D]
  at::Tensor image_tokens;  // [B, P, D]
  at::Tensor text_global;   // [B, K, D]
  at::Tensor present;       // bool [B, K], of this rank
  CaptionRelation relation;

  std::int64_t images() const { return present.size(0); }
  std::int64_t captions() const { return present.size(1); }
  at::ScalarType dtype() const { return text_global.scalar_type(); }
};

/// Which of the image's features an objective wants; the others stay undefined.
struct CaptionWants {
  bool image_global = false;
  bool image_tokens = false;
};

/// One of an image view's tensors, `name` being image_global [B, D] or image_tokens [B, P, D], in the type losses compute in.
/// Throws as caption_features() does unless it fits `text`, the captions' embeddings [B, K, D].
at::Tensor image_feature(const at::Tensor& tensor, const char* objective, const char* name, const at::Tensor& text);

/// The features of the two views that `settings` name; a text view of one caption gives K = 1. Throws UserError for what
/// the towers do not give, and c10::Error "OBJECTIVE: TENSOR must be ..., got ..." for what does not fit.
CaptionFeatures caption_features(const Features& features, const char* objective, const CaptionSettings& settings,
                                 const CaptionWants& wants, const ProcessGroup& group);

}  // namespace tessera
