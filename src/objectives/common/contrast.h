#pragma once

#include <optional>

#include <ATen/core/Tensor.h>

#include "src/objectives/common/contrast_targets.h"
#include "src/objectives/common/negative_contrast.h"
#include <tessera/distributed/process_group.h>

namespace tessera {

/// InfoNCE in both directions and their mean, as scalars. With several ranks these are means over this rank's own present pairs,
/// each contrasted with the global batch (ProcessGroup documents how losses and gradients of ranks combine). Below, B is the
/// number of this rank's pairs and C the number of all pairs.
struct Contrast {
  at::Tensor loss;
  at::Tensor i2t;
  at::Tensor t2i;
};

/// Computes InfoNCE of similarities [B, C] (row = own image, column = text): the image-to-text softmaxes run along the rows of
/// `i2t`, the text-to-image softmaxes along the columns of `t2i`, which each rank fetches for its own texts. The matching text of
/// own row b is column rank * B + b. `scale` is 1/temperature, a scalar. Entries that `targets` leave out are ignored;
/// similarities of absent pairs must be finite. A pair without negatives has loss and gradient 0. `further` [B] is the logarithm
/// of an additional summand of each own image's softmax, relative to its matching pair; undefined: none.
Contrast info_nce(const at::Tensor& i2t, const at::Tensor& t2i, const at::Tensor& scale, const ProcessGroup& group = {},
                  const ContrastTargets& targets = {}, const at::Tensor& further = {});

/// How a loss on global embeddings is computed. None of the options changes the result.
struct ContrastOptions {
  std::optional<std::int64_t> chunk;  // images per tile; null: [B, C] at once
  bool own_rows = true;               // false: every rank computes the whole batch's loss
};

/// Computes InfoNCE on the cosines of global embeddings [B, D], which need not be normalized (CLIP, eq. 1 of SPARC). With `chunk`
/// the similarities are computed in tiles of that many images, forward and backward, and blocks of texts travel around the ranks
/// through two fixed buffers, so that memory is O(B * tile). Images are also contrasted with their `negatives` (NegCLIP,
/// Yuksekgonul et al. 2023), whose target is 0 with any smoothing; if every image uses all negatives, each rank holds all of these
/// texts.
Contrast global_contrast(const at::Tensor& image_global, const at::Tensor& text_global, const at::Tensor& scale,
                         const ContrastOptions& options, const ProcessGroup& group,
                         const ContrastTargets& targets = {}, const NegativeTexts& negatives = {});

/// Contrasts tokens within each pair: row n of `queries` [B, N, D] matches row n of `keys` [B, N, D], both of unit length. Returns
/// [B, N]: (row cross-entropy + column cross-entropy) / 2 over the rows where `mask` [B, N] is true, 0 elsewhere; an undefined
/// mask means all rows. (SPARC, eq. 6; MGCA, eq. 4-6.)
at::Tensor token_contrast(const at::Tensor& queries, const at::Tensor& keys, const at::Tensor& mask,
                          const at::Tensor& scale);

}  // namespace tessera
