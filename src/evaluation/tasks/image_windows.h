#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "src/evaluation/tasks/patch_scores.h"
#include "src/evaluation/tasks/task_settings.h"
#include <tessera/evaluation/embedder.h>
#include <tessera/sample.h>

namespace tessera {

/// Compares a whole image with texts, window by window, so that the image keeps its aspect ratio and is not cropped.
class ImageWindows {
 public:
  /// Embeds `batch_size` windows at a time. Throws UserError if a window's size is not a multiple of the patch size.
  ImageWindows(const Embedder& embedder, const WindowSettings& settings, PatchScores patches, std::int64_t batch_size);

  /// Returns the scores of the resized image's pixels, float32 [N, height, width]. A pixel's scores are averaged over the windows that
  /// contain it. Throws UserError if the model's patches cannot be scored or a score is not finite. `key` names the image in messages.
  at::Tensor scores(const Image& image, const std::string& key) const;

 private:
  at::Tensor scores_of(const at::Tensor& windows, const std::string& key) const;

  const Embedder& embedder_;
  PatchScores patches_;
  std::int64_t batch_size_, size_, stride_, short_side_;
  config::Size grid_;  // the grid of a window's patches
};

}  // namespace tessera
