#pragma once

#include <optional>

#include <ATen/core/Tensor.h>

#include "src/objectives/common/caption_relation.h"
#include <tessera/config/fields.h>
#include <tessera/distributed/process_group.h>

namespace tessera {

/// What the softmax of an image's row goes over: the captions in one slot, all captions, or of several positives each
/// beside the negatives alone.
enum class CaptionDenominator { slot, all, negatives };

/// The denominator that a setting names: slot, all or negatives.
CaptionDenominator caption_denominator(const std::string& name);

/// Contrasts of images with K captions each over the global batch. Similarities exist one tile at a time, forward and again
/// backward: memory grows with B D and C K D, never with B C K. Every rank holds all captions, computes the similarities of
/// its own images, and tells the others the sums that it has for their captions. No second derivatives.
/// image    [B, D]     this rank's, of unit length (or 0)
/// texts    [C, K, D]  the captions of all ranks, as gather_rows gives them, of unit length; 0 where absent
/// scale    []         1/temperature
/// chunk               images in a tile; nothing: as many as suit the device
struct CaptionContrast {
  at::Tensor i2t;  // the mean over rows that have a positive; 0 if none has
  at::Tensor t2i;  // the mean over present captions
};
/// Multi-positive InfoNCE: a row's term is the mean over its positives p of log(sum of exp(s) over the denominator) - s_p.
CaptionContrast caption_info_nce(const at::Tensor& image, const at::Tensor& texts, const at::Tensor& scale,
                                 CaptionDenominator denominator, const CaptionRelation& relation,
                                 std::optional<std::int64_t> chunk, const ProcessGroup& group);

/// Multi-positive sigmoid: the sum over this rank's images and all captions with R != 0 of -log sigmoid(R (s + bias)).
at::Tensor caption_sigmoid(const at::Tensor& image, const at::Tensor& texts, const at::Tensor& scale,
                           const at::Tensor& bias, const CaptionRelation& relation, std::optional<std::int64_t> chunk,
                           const ProcessGroup& group);

}  // namespace tessera
