#pragma once

#include <cstdint>
#include <vector>

#include "src/objectives/pairs/walk.h"

namespace tessera {

/// What a loss with soft targets computes of a teacher's softmax p and the student's softmax q: the cross-entropy -sum p log q (OpenCLIP's
/// DistillClipLoss), or the divergence sum p (log p - log q) (MobileCLIP, arXiv 2311.17049, eq. 2). Their gradients are the same.
enum class SoftTargets { cross_entropy, divergence };

/// Returns a mean over rows, as a scalar: half of it is the mean over the rows of images, half that over the rows of texts. A row is a
/// softmax over the texts of one slot for an image, or over all images for a text; the rows that count, and their entries, are those of
/// InfoNCE with Denominator::slot, except that a duplicate is an ordinary entry unless the relation leaves it out. The loss of a row is the
/// mean over the teachers. The columns of pairs.taught_images and pairs.taught_texts hold the teachers side by side, `widths` columns for
/// each; the product of a teacher's columns of an image and a text is its logit. `scale` is the student's 1/temperature. No matrix of all
/// pairs is ever in memory, of the student or of a teacher. Products are computed without TF32. Second derivatives are not supported.
at::Tensor tiled_soft_targets(const PairSet& pairs, const at::Tensor& scale, const std::vector<std::int64_t>& widths, SoftTargets kind);

}  // namespace tessera
