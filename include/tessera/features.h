#pragma once

#include <map>
#include <string>

#include <ATen/core/Tensor.h>

namespace tessera {

/// What an image tower gives for one view. Not normalised. Undefined tensors: not asked for, or not produced by this tower.
struct ImageFeatures {
  at::Tensor global;     // [B, D] embedding
  at::Tensor tokens;     // [B, P, D] patch embeddings in the shared space
  at::Tensor mask;       // [B, P] bool, true = real; undefined: all real
  at::Tensor dense;      // [B, P, D] patches through the same head as the global embedding (zero-shot segmentation)
  at::Tensor slots;      // [B, S, Ds]
  at::Tensor attention;  // [B, S, P]
};

/// What a text tower gives for one text. Not normalised; `tokens` is 0 where `mask` is false.
struct TextFeatures {
  at::Tensor global;     // [B, D]
  at::Tensor tokens;     // [B, L, D]
  at::Tensor mask;       // [B, L] bool, true = real token
  at::Tensor slots;      // [B, S, Ds]
  at::Tensor attention;  // [B, S, L]
};

/// Features by view name (`image`, `caption`, ...): all that an objective sees of a batch.
struct Features {
  std::map<std::string, ImageFeatures> images;
  std::map<std::string, TextFeatures> texts;
  at::Tensor image_ids;  // int64 [B], equal for pictures of the same bytes; undefined: every pair has its own
  at::Tensor text_ids;   // int64 [B], equal for the same caption; undefined: every pair has its own

  /// The named view; throws c10::Error naming the views there are.
  const ImageFeatures& image(const std::string& view = "image") const;
  const TextFeatures& text(const std::string& view = "caption") const;
};

}  // namespace tessera
