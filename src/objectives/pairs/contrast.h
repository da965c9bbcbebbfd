#pragma once

#include <optional>

#include <ATen/core/Tensor.h>

#include "src/objectives/pairs/negatives.h"
#include "src/objectives/pairs/tiled_losses.h"
#include <tessera/distributed/process_group.h>

namespace tessera {

/// Computes InfoNCE of similarities [B, C] between this rank's images (rows) and the texts of all ranks (columns), for plain pairs.
/// Image-to-text softmaxes run along the rows of `i2t`. Text-to-image softmaxes run along the columns of `t2i`; a rank fetches the
/// similarities of its own texts with the other ranks' images. The text that matches row b is column rank * B + b. `scale` is
/// 1/temperature, a scalar. Entries that `relation` leaves out are ignored; similarities of absent pairs must be finite. A pair without
/// negatives has loss and gradient 0.
Contrast info_nce(const at::Tensor& i2t, const at::Tensor& t2i, const at::Tensor& scale, const ProcessGroup& group,
                  const PairRelation& relation);

/// How a loss on global embeddings is computed. None of these options changes the result.
struct ContrastOptions {
  std::optional<std::int64_t> chunk;  // images per tile; null computes all similarities [B, C] at once
  bool own_rows =
      true;  // true: a rank computes only the rows of its own pairs; false: it computes the whole batch's loss
};

/// Computes InfoNCE (CLIP; eq. 1 of SPARC) on the cosines of global embeddings [B, D], which need not be normalized. With `chunk`, the
/// similarities are computed in tiles of that many images, forward and backward, and blocks of texts travel around the ranks through two
/// fixed buffers, so that memory is O(B * chunk). Images are also contrasted with their `negatives` (NegCLIP, Yuksekgonul et al. 2023). A
/// negative's target is 0, even with label smoothing. With negatives.of_all, each rank holds the negatives of all ranks.
Contrast global_contrast(const at::Tensor& image_global, const at::Tensor& text_global, const at::Tensor& scale,
                         const ContrastOptions& options, const ProcessGroup& group, const PairRelation& relation,
                         const NegativeTexts& negatives = {});

}  // namespace tessera
