#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "src/evaluation/tasks/patch_scores.h"
#include <tessera/data/sample.h>
#include <tessera/evaluation/embedder.h>
#include <tessera/evaluation/tasks/task_settings.h>

namespace tessera {

/// Compares a whole picture with texts, window by window, so that it keeps its ratio and loses no edge.
class PictureWindows {
 public:
  /// So many windows are embedded at a time. Throws UserError for a window that the model's patches do not fit.
  PictureWindows(const Embedder& embedder, const WindowSettings& settings, PatchScores patches, std::int64_t batch_size);

  /// Mean scores [N, height, width] float32 of the resized picture's pixels. Throws UserError where the model's patches have
  /// none, or one that is not finite; `key` names the picture.
  at::Tensor scores(const Image& picture, const std::string& key) const;

 private:
  at::Tensor scores_of(const at::Tensor& windows, const std::string& key) const;

  const Embedder& embedder_;
  PatchScores patches_;
  std::int64_t batch_size_, size_, stride_, short_side_;
  config::Size grid_;  // of a window
};

}  // namespace tessera
