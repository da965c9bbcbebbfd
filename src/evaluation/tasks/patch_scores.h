#pragma once

#include <functional>

#include <ATen/core/Tensor.h>

#include "src/evaluation/conditioned_embedder.h"
#include "src/evaluation/tasks/task_settings.h"

namespace tessera {

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
/// computes its last block.
PatchScores cosines_of_patches(const at::Tensor& names, LastBlock last_block);

/// Scores patches through the text-conditioned pool of `model`. A patch's score for a name is the conditioned similarity that results if
/// only this patch is pooled. With `attention`, it is the attention of the name to the patch. `names` are features of texts or classes.
/// `model` must outlive the result.
PatchScores conditioned_patches(const ConditionedEmbedder& model, const TowerFeatures& names, bool attention);

}  // namespace tessera
