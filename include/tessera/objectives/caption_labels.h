#pragma once

#include <string>

#include <ATen/core/Tensor.h>

namespace tessera {

/// Returns, for inspection, the role that each caption of a batch has for each image in the losses on several captions per image: 1
/// for a positive, -1 for a negative, 0 for an ignored caption (it is absent or a masked duplicate).
/// present      [B, K]    bool
/// image_ids    [B]       int64, equal for equal images; undefined if all images differ
/// caption_ids  [B, K]    int64, equal for equal captions; undefined if all captions differ
/// duplicates             "negative", "masked" or "positive"
/// returns      [B, B K]  int64, the captions of image j in columns j K, ..., j K + K - 1
at::Tensor caption_labels(const at::Tensor& present, const at::Tensor& image_ids, const at::Tensor& caption_ids,
                          const std::string& duplicates);

}  // namespace tessera
