#pragma once

#include <string>

#include "src/objectives/pairs/walk.h"

namespace tessera {

/// InfoNCE in both directions, and the mean of the two, as scalars. With several ranks, each value is this rank's part of a mean over the
/// global batch. (ProcessGroup documents how the losses and gradients of ranks combine.)
struct Contrast {
  at::Tensor loss;
  at::Tensor i2t;  // image-to-text loss, the mean over rows with a positive; 0 if no row has one
  at::Tensor t2i;  // text-to-image loss, the mean over present texts

  static Contrast mean_of(const at::Tensor& i2t, const at::Tensor& t2i) { return {(i2t + t2i) / 2, i2t, t2i}; }
};

/// Which texts the softmax of an image sums over. slot: one softmax for each of the K slots, over the texts that all images have in that
/// slot. all: one softmax, over all texts. negatives: one softmax for each positive, over this positive and all negatives. With K = 1
/// they are the same, except for duplicates that count as positives.
enum class Denominator { slot, all, negatives };

/// Returns the denominator for a name: slot, all or negatives.
Denominator denominator_named(const std::string& name);

/// Computes InfoNCE on tiles of cosines. The loss of a row is the mean of log(sum of exp(s)) - s_p over the row's positives p. s are
/// logits, and the sum runs over the texts that `denominator` chooses. `scale` is 1/temperature, a scalar. `further` [B], with K = 1, is
/// log(additional term in the denominator of each image's softmax) - (logit of the matching pair); undefined if there is no such term.
/// Second derivatives are not supported.
Contrast tiled_info_nce(const PairSet& pairs, const at::Tensor& scale, Denominator denominator,
                        const at::Tensor& further = {});

/// Computes the sigmoid loss, the sum of -log sigmoid(R (s + bias)) over this rank's images and all texts whose relation R is not 0, in
/// two parts. s is the pair's scaled cosine. Second derivatives are not supported.
struct SigmoidLoss {
  at::Tensor own;     // the images with their own texts
  at::Tensor others;  // the images with all other texts
};
SigmoidLoss tiled_sigmoid(const PairSet& pairs, const at::Tensor& scale, const at::Tensor& bias);

/// Returns SigmoidLoss::own, composed of differentiable operations.
at::Tensor own_sigmoid(const PairSet& pairs, const at::Tensor& scale, const at::Tensor& bias);

}  // namespace tessera
