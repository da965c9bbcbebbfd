#pragma once

#include <optional>
#include <string>
#include <utility>

#include <ATen/core/Tensor.h>

#include "src/objectives/common/pair_features.h"
#include <tessera/distributed/process_group.h>
#include <tessera/features.h>
#include <tessera/objectives/negative_texts.h>

namespace tessera {

/// The hard-negative texts of a batch. Each image is compared with its own negatives, or with those of all ranks (NegCLIP,
/// Yuksekgonul et al. 2023). A default-constructed object means no negatives.
struct NegativeTexts {
  at::Tensor texts;          // [B, H, D], of unit length; 0 and without gradient where absent
  at::Tensor present;        // bool [B, H]; false for the negatives of an absent pair
  at::Tensor rows;           // bool [B], images that are compared with negatives; undefined: all
  bool of_all = false;       // compare each image with the negatives of all images

  bool defined() const { return texts.defined(); }
  /// Returns the negatives of all ranks, for the images of all ranks.
  NegativeTexts gathered(const ProcessGroup& group) const;
  /// Returns the statistic `negatives_per_image`: the mean number of present negatives.
  std::pair<std::string, at::Tensor> count() const;
};

/// Returns the negatives of the view `negatives`, [B, H, D], in the losses' computing type. Throws like pair_features().
NegativeTexts negative_texts(const Features& features, const char* objective, const NegativeTextSettings& settings,
                             const PairFeatures& pairs);

/// Returns the negatives' summand of each image's softmax, [B]: the logarithm of sum_n exp(scale (cos(image_b, n) - right_b)) over
/// its negatives n; the lowest number of the type for an image without negatives.
/// image: [B, D], of unit length; right: [B], cosines of the matching pairs; chunk: images per tile, which is recomputed in the
/// backward pass.
at::Tensor negative_log_sums(const at::Tensor& image, const at::Tensor& right, const at::Tensor& scale,
                             const NegativeTexts& negatives, std::optional<std::int64_t> chunk,
                             const ProcessGroup& group);

/// Returns each image's sum over its negatives n of -log sigmoid(-(scale cos(image_b, n) + bias)), [B]. Arguments as above.
at::Tensor negative_sigmoid_sums(const at::Tensor& image, const at::Tensor& scale, const at::Tensor& bias,
                                 const NegativeTexts& negatives, std::optional<std::int64_t> chunk,
                                 const ProcessGroup& group);

}  // namespace tessera
