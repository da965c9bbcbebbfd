#pragma once

#include <optional>
#include <string>
#include <utility>

#include <ATen/core/Tensor.h>

#include "src/objectives/pairs/features.h"
#include <tessera/distributed/process_group.h>
#include <tessera/features.h>
#include <tessera/objectives/negative_texts.h>

namespace tessera {

/// The hard-negative texts of a batch. Each image is compared either with its own negatives, or with the negatives of all images of all
/// ranks (NegCLIP, Yuksekgonul et al. 2023). A default-constructed object has no negatives.
struct NegativeTexts {
  at::Tensor texts;          // [B, H, D], unit-length embeddings; absent ones are 0 and get no gradient
  at::Tensor present;        // bool [B, H], true for present negatives; false for all negatives of an absent pair
  at::Tensor rows;           // bool [B], true for images that are compared with negatives; undefined if all are
  bool of_all = false;       // true: each image is compared with the negatives of all images

  bool defined() const { return texts.defined(); }
  /// Returns the negatives of all ranks, for the images of all ranks.
  NegativeTexts gathered(const ProcessGroup& group) const;
  /// Returns the statistic `negatives_per_image`: the mean number of present negatives.
  std::pair<std::string, at::Tensor> count() const;
};

/// Returns the negatives of the view `negatives`, [B, H, D], in the dtype in which losses are computed. Throws like pair_features().
NegativeTexts negative_texts(const Features& features, const char* objective, const NegativeTextSettings& settings,
                             const PairFeatures& pairs);

/// Returns [B], the logarithm of the term that an image's negatives n add to the denominator of its softmax: log sum_n exp(scale
/// (cos(image_b, n) - right_b)). For an image without negatives it is the type's lowest number. image: [B, D], rows of unit length. right:
/// [B], the cosines of the matching pairs. chunk: images per tile; tiles are recomputed in the backward pass.
at::Tensor negative_log_sums(const at::Tensor& image, const at::Tensor& right, const at::Tensor& scale,
                             const NegativeTexts& negatives, std::optional<std::int64_t> chunk,
                             const ProcessGroup& group);

/// Returns [B], the sum over an image's negatives n of -log sigmoid(-(scale cos(image_b, n) + bias)). The arguments are those of
/// negative_log_sums().
at::Tensor negative_sigmoid_sums(const at::Tensor& image, const at::Tensor& scale, const at::Tensor& bias,
                                 const NegativeTexts& negatives, std::optional<std::int64_t> chunk,
                                 const ProcessGroup& group);

}  // namespace tessera
