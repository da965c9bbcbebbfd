#pragma once

#include <string>

#include <ATen/core/Tensor.h>

namespace tessera {

/// Returns the role of each caption of a batch for each image in the losses on several captions per image, for inspection: 1 is a
/// positive, -1 a negative, 0 is ignored (absent, or a masked duplicate).
/// present      [B, K]    bool
/// image_ids    [B]       int64, equal for equal images; undefined: all differ
/// caption_ids  [B, K]    int64, equal for equal captions; undefined: all differ
/// duplicates             "negative", "masked" or "positive"
/// returns      [B, B K]  int64, the captions of image j in columns j K, ..., j K + K - 1
at::Tensor caption_labels(const at::Tensor& present, const at::Tensor& image_ids, const at::Tensor& caption_ids,
                          const std::string& duplicates);

}  // namespace tessera
