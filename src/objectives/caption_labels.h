#pragma once

#include <string>

#include <ATen/core/Tensor.h>

namespace tessera {

/// For inspection. Returns the label of each pair of an image and a caption in the losses on several captions per image: 1 for a positive
/// pair, -1 for a negative pair, 0 if the caption is ignored because it is absent or a masked duplicate.
/// present      [B, K]    bool
/// image_ids    [B]       int64, equal for equal images; undefined if all images differ
/// caption_ids  [B, K]    int64, equal for equal captions; undefined if all captions differ
/// duplicates             "negative", "masked" or "positive"
/// returns      [B, B K]  int64, the captions of image j in columns j K, ..., j K + K - 1
at::Tensor caption_labels(const at::Tensor& present, const at::Tensor& image_ids, const at::Tensor& caption_ids,
                          const std::string& duplicates);

}  // namespace tessera
