#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "src/evaluation/metrics/cosine.h"
#include <tessera/data/sample.h>
#include <tessera/evaluation/embedder.h>
#include <tessera/evaluation/tasks/task_settings.h>

namespace tessera {

/// Compares a whole picture with texts, window by window, so that it keeps its ratio and loses no edge.
class PictureWindows {
 public:
  /// names [N, D] are embeddings of texts. So many windows are embedded at a time. Throws UserError for a window that the
  /// model's patches do not fit.
  PictureWindows(const Embedder& embedder, const WindowSettings& settings, const ViewNeeds& needs, at::Tensor names,
                 std::int64_t batch_size);

  /// Mean cosines [N, height, width] float32 of the resized picture's pixels. Throws UserError where the model gives no
  /// patches of the texts' width, or an embedding that is not finite; `key` names the picture.
  at::Tensor scores(const Image& picture, const std::string& key) const;

 private:
  at::Tensor scores_of(const at::Tensor& windows, const std::string& key) const;

  const Embedder& embedder_;
  ViewNeeds needs_;
  metrics::CosinesWith names_;
  std::int64_t batch_size_, size_, stride_, short_side_;
  config::Size grid_;  // of a window
};

/// Throws UserError where these are no patches of a grid that can be compared with texts of this width.
void check_patches(const at::Tensor& patches, config::Size grid, std::int64_t text_width);

}  // namespace tessera
