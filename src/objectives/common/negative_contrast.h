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

/// Hard-negative texts of a batch, and which of its images are compared with which: each with its own ones, or with those
/// of all ranks (NegCLIP, Yuksekgonul et al. 2023). A default one stands for none.
struct NegativeTexts {
  at::Tensor texts;          // [B, H, D], of unit length; 0, and without a gradient, where absent
  at::Tensor present;        // bool [B, H]; those of a pair that takes no part are absent
  at::Tensor rows;           // bool [B], images that are compared with any; undefined: all
  bool of_all = false;       // each image with all of them

  bool defined() const { return texts.defined(); }
  /// Those of all ranks, for their images.
  NegativeTexts gathered(const ProcessGroup& group) const;
  /// The statistic `negatives_per_image`: the mean number of those that are there.
  std::pair<std::string, at::Tensor> count() const;
};

/// Those of the view `negatives`, in the type of the pairs' features. Throws UserError and c10::Error as pair_features()
/// does, for [B, H, D] embeddings.
NegativeTexts negative_texts(const Features& features, const char* objective, const NegativeTextSettings& settings,
                             const PairFeatures& pairs);

/// What the softmax of each image's row sums beside the batch's texts: the logarithm of
/// sum_n exp(scale (cos(image_b, n) - right_b)) over its negatives n, [B]; the lowest number of the type where it has none.
/// image: [B, D], of unit length; right: [B], cosines of the right pairs. chunk: images in a tile, which is computed again
/// in the backward pass.
at::Tensor negative_log_sums(const at::Tensor& image, const at::Tensor& right, const at::Tensor& scale,
                             const NegativeTexts& negatives, std::optional<std::int64_t> chunk,
                             const ProcessGroup& group);

/// Each image's sum over its negatives n of -log sigmoid(-(scale cos(image_b, n) + bias)), [B]. As above.
at::Tensor negative_sigmoid_sums(const at::Tensor& image, const at::Tensor& scale, const at::Tensor& bias,
                                 const NegativeTexts& negatives, std::optional<std::int64_t> chunk,
                                 const ProcessGroup& group);

}  // namespace tessera
