#pragma once

#include <functional>

#include <ATen/core/Tensor.h>

#include <tessera/evaluation/conditioned_embedder.h>
#include <tessera/evaluation/tasks/task_settings.h>

namespace tessera {

/// A way to score patches against texts.
struct PatchScores {
  ViewNeeds needs;         // the features of images that `of` needs
  std::int64_t names = 0;  // number of texts
  /// Returns the scores of images' patches, [B, P, names] floating, P patches of a grid. Throws UserError if the features have
  /// no such patches, or a width other than the texts'.
  std::function<at::Tensor(const TowerFeatures& images, config::Size grid)> of;

  /// Returns the scores as maps, [B, names, rows, columns].
  at::Tensor maps(const TowerFeatures& images, config::Size grid) const;
};

/// Scores patches by the cosine of TowerFeatures::dense, computed with this last block, with names [N, D].
PatchScores cosines_of_patches(const at::Tensor& names, LastBlock last_block);

/// Scores patches by the conditioned score of each single patch, or with `attention` by each name's attention to it, through the
/// pool of `model`, which must outlive the result. `names` are features of texts or classes.
PatchScores conditioned_patches(const ConditionedEmbedder& model, const TowerFeatures& names, bool attention);

}  // namespace tessera
