#pragma once

#include <functional>

#include <ATen/core/Tensor.h>

#include <tessera/evaluation/conditioned_embedder.h>
#include <tessera/evaluation/tasks/task_settings.h>

namespace tessera {

/// How much patches are like texts, by whatever compares them.
struct PatchScores {
  ViewNeeds needs;         // of pictures
  std::int64_t names = 0;  // texts
  /// Features of pictures -> [B, P, names] floating, P patches of a grid. Throws UserError where the features have no such
  /// patches, or not the texts' width.
  std::function<at::Tensor(const TowerFeatures& images, config::Size grid)> of;

  /// The scores as maps, [B, names, rows, columns].
  at::Tensor maps(const TowerFeatures& images, config::Size grid) const;
};

/// Cosines of TowerFeatures::dense, made with this last block, with names [N, D].
PatchScores cosines_of_patches(const at::Tensor& names, LastBlock last_block);

/// What the pool of `model`, which outlives it, finds for names in single patches; with `attention`, how much each name looks
/// at each patch. `names` are features of texts or classes.
PatchScores conditioned_patches(const ConditionedEmbedder& model, const TowerFeatures& names, bool attention);

}  // namespace tessera
