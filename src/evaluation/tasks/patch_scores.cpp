#include "src/evaluation/tasks/patch_scores.h"

#include "src/evaluation/metrics/cosine.h"
#include <tessera/base/error.h>

namespace tessera {
namespace {

/// Throws UserError if these are not the patches of a grid.
void check_grid(const at::Tensor& patches, config::Size grid) {
  if (!patches.defined()) user_error("segmentation: this model's image tower outputs no patch embeddings");
  if (patches.size(1) != grid.height * grid.width)
    user_error("segmentation: this model's image tower outputs ", patches.size(1), " groups, not ", grid.height, " x ",
               grid.width, " patches: take by: groups");
}

/// Also throws if they cannot be compared with texts of this width.
void check_patches(const at::Tensor& patches, config::Size grid, std::int64_t text_width) {
  check_grid(patches, grid);
  if (patches.size(2) != text_width)
    user_error("segmentation: this model's patch embeddings are ", patches.size(2), " wide and those of its texts ",
               text_width,
               ": take a read-out that keeps the tokens' width (gap, cls, max, eos), so that patches compare with texts");
}

}  // namespace

at::Tensor PatchScores::maps(const TowerFeatures& images, config::Size grid) const {
  const at::Tensor scores = of(images, grid);
  return scores.transpose(1, 2).reshape({scores.size(0), names, grid.height, grid.width});
}

PatchScores cosines_of_patches(const at::Tensor& names, LastBlock last_block) {
  const auto compare = [cosines = metrics::CosinesWith(names)](const TowerFeatures& images, config::Size grid) {
    check_patches(images.dense, grid, cosines.width());
    return cosines(images.dense);
  };
  return {.needs = {.dense = true, .last_block = last_block}, .names = names.size(0), .of = compare};
}

PatchScores conditioned_patches(const ConditionedEmbedder& model, const TowerFeatures& names, bool attention) {
  const auto compare = [&model, names, attention](const TowerFeatures& images, config::Size grid) {
    check_grid(images.tokens, grid);
    const metrics::ConditionedSimilarity& scores = model.with(names);
    return attention ? scores.attention(images.tokens) : scores.of_patches(images.tokens);
  };
  return {.needs = {.tokens = true}, .names = names.global.size(0), .of = compare};
}

}  // namespace tessera
