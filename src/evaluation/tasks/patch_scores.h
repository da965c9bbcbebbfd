#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include <ATen/core/Tensor.h>

#include "src/evaluation/embedder_views.h"
#include <tessera/config/fields.h>
#include <tessera/sample.h>

namespace tessera {

/// Returns the grid of the patches of one image, and removes the patches that pad an image that keeps its shape from its features.
config::Size grid_of_image(const Embedder& embedder, TowerFeatures& image);

/// Throws UserError if there are no `patches` [B, P, D], or if they do not form the grid. `task` is the task's registered name, `advice`
/// the end of the message.
void check_patch_grid(const std::string& task, const at::Tensor& patches, config::Size grid, const std::string& advice);
/// Throws UserError unless patches and texts have embeddings of the same width. `task` is the task's registered name, for the message.
void check_patch_width(const std::string& task, std::int64_t patches, std::int64_t texts);

/// A way to score image patches against texts. In this file, the word `names` stands for the texts.
struct PatchScores {
  ViewNeeds needs;         // the image features that the function `of` needs
  std::int64_t names = 0;  // number of texts
  /// Returns the scores of the images' patches, floating-point [B, P, names], for the P patches of a grid. Throws UserError if the
  /// features have no such patches or have a different width than the texts.
  std::function<at::Tensor(const TowerFeatures& images, config::Size grid)> of;

  /// Returns the scores as maps, [B, names, rows, columns].
  at::Tensor maps(const TowerFeatures& images, config::Size grid) const;
};

/// Scores patches by the cosine between TowerFeatures::dense and the text embeddings `names` [N, D]. `last_block` sets how the image tower
/// computes its last block. `task` is the task's registered name, for messages.
PatchScores cosines_of_patches(const at::Tensor& names, LastBlock last_block, const std::string& task = "segmentation");

/// Scores patches through the text-conditioned pool of `model`. A patch's score for a name is the conditioned similarity that results if
/// only this patch is pooled. With `attention`, it is the attention of the name to the patch. `names` are features of texts or classes.
/// `model` must outlive the result.
PatchScores conditioned_patches(const ConditionedEmbedder& model, const TowerFeatures& names, bool attention,
                                const std::string& task = "segmentation");

/// Settings for segmenting whole images by overlapping windows of the model's input size.
struct WindowSettings {
  std::int64_t short_side = 336;
  std::optional<std::int64_t> size;
  std::optional<std::int64_t> stride;
};

template <class Visitor>
void fields(Visitor& v, WindowSettings& s) {
  v("short_side", s.short_side,
    "size in pixels to which an image's shorter side is resized, keeping the aspect ratio; 0: do not resize. The image is made at "
    "least as large as one window",
    config::at_least(0));
  v("size", s.size, "side of a window in pixels; null: the model's image size", config::at_least(1));
  v("stride", s.stride, "pixels from one window to the next; null: half a window", config::at_least(1));
}

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
