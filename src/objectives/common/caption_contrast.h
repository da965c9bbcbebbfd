#pragma once

#include <optional>

#include <ATen/core/Tensor.h>

#include "src/objectives/common/caption_relation.h"
#include <tessera/config/fields.h>
#include <tessera/distributed/process_group.h>

namespace tessera {

/// Which captions the softmax of an image sums over. slot: one softmax for each of the K slots, over the captions that all images have in
/// that slot. all: one softmax, over all captions. negatives: one softmax for each positive, over this positive and all negatives.
enum class CaptionDenominator { slot, all, negatives };

/// Returns the denominator for a name: slot, all or negatives.
CaptionDenominator caption_denominator(const std::string& name);

/// Contrastive losses over the C images of the global batch, with K captions each. Only one tile of similarities is in memory at a time,
/// and tiles are recomputed in the backward pass, so memory grows with B D and C K D, never with B C K. Every rank holds all captions and
/// computes the similarities of its own B images. The ranks then combine their sums for each caption. Second derivatives are not supported.
/// image    [B, D]     this rank's images, of unit length (or 0)
/// texts    [C, K, D]  the captions of all ranks (from gather_rows), of unit length; 0 where absent
/// scale    []         1/temperature
/// chunk               images per tile; nullopt: a number that suits the device
struct CaptionContrast {
  at::Tensor i2t;  // image-to-text loss, the mean over rows with a positive; 0 if no row has one
  at::Tensor t2i;  // text-to-image loss, the mean over present captions
};
/// Computes multi-positive InfoNCE. The loss of a row is the mean of log(sum of exp(s)) - s_p over the row's positives p. s are logits, and
/// the sum runs over the captions that `denominator` chooses.
CaptionContrast caption_info_nce(const at::Tensor& image, const at::Tensor& texts, const at::Tensor& scale,
                                 CaptionDenominator denominator, const CaptionRelation& relation,
                                 std::optional<std::int64_t> chunk, const ProcessGroup& group);

/// Computes the multi-positive sigmoid loss of this rank's images and all captions: the sum of -log sigmoid(R (s + bias)) over the pairs
/// whose relation R is not 0. s is the pair's scaled cosine.
at::Tensor caption_sigmoid(const at::Tensor& image, const at::Tensor& texts, const at::Tensor& scale,
                           const at::Tensor& bias, const CaptionRelation& relation, std::optional<std::int64_t> chunk,
                           const ProcessGroup& group);

}  // namespace tessera
