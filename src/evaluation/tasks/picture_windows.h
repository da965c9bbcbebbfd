#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "src/evaluation/tasks/patch_scores.h"
#include <tessera/data/sample.h>
#include <tessera/evaluation/embedder.h>
#include <tessera/evaluation/tasks/task_settings.h>

namespace tessera {

/// Compares a whole image with texts, window by window, so that it keeps its aspect ratio and is not cropped.
class PictureWindows {
 public:
  /// Embeds `batch_size` windows at a time. Throws UserError for a window that is not a whole number of patches.
  PictureWindows(const Embedder& embedder, const WindowSettings& settings, PatchScores patches, std::int64_t batch_size);

  /// Returns the mean scores [N, height, width] float32 of the resized image's pixels. Throws UserError if the model's patches
  /// have no scores, or one is not finite; `key` names the image.
  at::Tensor scores(const Image& picture, const std::string& key) const;

 private:
  at::Tensor scores_of(const at::Tensor& windows, const std::string& key) const;

  const Embedder& embedder_;
  PatchScores patches_;
  std::int64_t batch_size_, size_, stride_, short_side_;
  config::Size grid_;  // patch grid of a window
};

}  // namespace tessera
