#pragma once

#include <optional>

#include <ATen/core/Tensor.h>

#include "src/objectives/common/contrast_targets.h"
#include "src/objectives/common/negative_contrast.h"
#include <tessera/distributed/process_group.h>

namespace tessera {

/// InfoNCE in both directions and their mean; scalars. Over several ranks: means over this rank's own present pairs,
/// each against the whole batch (ProcessGroup says how losses and gradients of ranks combine). B: own pairs, C: all.
struct Contrast {
  at::Tensor loss;
  at::Tensor i2t;
  at::Tensor t2i;
};

/// InfoNCE of similarities [B, C] (row = own image, column = text): images choose along the rows of `i2t`, texts along
/// the columns of `t2i`, of which each rank fetches its own; the right pair of own row b is column rank * B + b.
/// `scale` is 1/temperature, a scalar. What `targets` leave out counts in no sum; similarities of absent pairs must be
/// finite. A pair without negatives has loss and gradient 0. `further` [B]: the logarithm of what each own image's softmax
/// sums besides, relative to its right pair; undefined: nothing.
Contrast info_nce(const at::Tensor& i2t, const at::Tensor& t2i, const at::Tensor& scale, const ProcessGroup& group = {},
                  const ContrastTargets& targets = {}, const at::Tensor& further = {});

/// How a loss on global embeddings is computed; nothing of it changes the result.
struct ContrastOptions {
  std::optional<std::int64_t> chunk;  // images per tile; null: [B, C] at once
  bool own_rows = true;               // false: every rank computes the whole batch's loss
};

/// InfoNCE of the cosines of global embeddings [B, D], not normalized (CLIP, eq. 1 of SPARC). With `chunk` the
/// similarities are made in tiles of that many images, forward and backward, and blocks of texts travel around the
/// ranks through two fixed buffers, so that memory is O(B * tile). Images choose among their `negatives` too (NegCLIP,
/// Yuksekgonul et al. 2023), whose target is 0 whatever the smoothing; with those of all, each rank holds these texts.
Contrast global_contrast(const at::Tensor& image_global, const at::Tensor& text_global, const at::Tensor& scale,
                         const ContrastOptions& options, const ProcessGroup& group,
                         const ContrastTargets& targets = {}, const NegativeTexts& negatives = {});

/// Contrast within each pair: row n of `queries` [B, N, D] belongs to row n of `keys` [B, N, D], both of unit length.
/// Returns [B, N]: (row cross-entropy + column cross-entropy) / 2 over the rows where `mask` [B, N] is true, 0
/// elsewhere; an undefined mask means all rows. (SPARC, eq. 6; MGCA, eq. 4-6.)
at::Tensor token_contrast(const at::Tensor& queries, const at::Tensor& keys, const at::Tensor& mask,
                          const at::Tensor& scale);

}  // namespace tessera
