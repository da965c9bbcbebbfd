#pragma once

#include <limits>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include "tests/objectives/pairs.h"
#include <tessera/objectives/objective.h>

/// Random crops and captions for the tests of `cosmos` in one process and over ranks.
namespace tessera {

inline constexpr std::int64_t kCosmosWidth = 4;

/// Returns YAML settings for two global crops and one local crop, with the settings `more` added.
inline std::string cosmos_yaml(const std::string& more = "") {
  return "{global_crops: 2, local_crops: 1, heads: 2" + (more.empty() ? "" : ", " + more) + "}";
}

/// Returns the objective with random values in all parameters, because biases of 0 would hide mistakes.
inline std::shared_ptr<Objective> made_cosmos(const std::string& yaml = cosmos_yaml(),
                                              at::ScalarType type = at::kDouble) {
  auto objective = make_objective("cosmos", yaml, kCosmosWidth, type);
  const at::NoGradGuard no_grad;
  at::manual_seed(11);
  for (at::Tensor& parameter : objective->parameters())
    if (parameter.dim() > 0) parameter.normal_();
  return objective;
}

/// Returns features of crops of 3 patches and captions of up to 4 words. The last image is a duplicate of the first, and the second and
/// third share a caption. With `gaps`, captions have different lengths and some are absent: the second caption of the first image (one that
/// the teacher sees), the first caption of the second image, and all captions of the third image. Absent values are NaN.
inline Features cosmos_features(std::int64_t images, bool gaps, at::ScalarType type = at::kDouble) {
  constexpr std::int64_t kCosmosCaptions = 3, kWords = 4, kPatches = 3;
  at::manual_seed(5);
  const double nothing = std::numeric_limits<double>::quiet_NaN();
  const auto random = [&](at::IntArrayRef sizes) { return at::randn(sizes, type); };
  Features out;
  for (const char* view : {"global_0", "global_1", "local_0"})
    out.images[view].global = random({images, kCosmosWidth}).requires_grad_(true);
  for (const char* view : {"global_0", "global_1"}) out.teacher_images[view].global = random({images, kCosmosWidth});
  out.images["global_0"].tokens = random({images, kPatches, kCosmosWidth}).requires_grad_(true);
  at::Tensor present = at::ones({images, kCosmosCaptions}, at::kBool),
             lengths = at::full({images, kCosmosCaptions}, kWords, at::kLong);
  if (gaps) {
    present[0][1] = false;
    present[1][0] = false;
    present[2].fill_(false);
    lengths = (at::arange(images * kCosmosCaptions) % kWords + 1).view({images, kCosmosCaptions});
  }
  const at::Tensor absent = present.logical_not().unsqueeze(2);  // [B, K, 1]
  const at::Tensor words = (at::arange(kWords) < lengths.unsqueeze(2)).logical_and(present.unsqueeze(2));
  TowerFeatures& text = out.texts["captions"];
  text.global = random({images, kCosmosCaptions, kCosmosWidth}).masked_fill(absent, nothing).requires_grad_(true);
  text.tokens = random({images, kCosmosCaptions, kWords, kCosmosWidth})
                    .masked_fill(words.logical_not().unsqueeze(3), nothing)
                    .requires_grad_(true);
  text.mask = words;
  text.present = present;
  out.teacher_texts["captions"].global = random({images, kCosmosCaptions, kCosmosWidth}).masked_fill(absent, nothing);
  out.duplicates.image_group = at::arange(images) % std::max<std::int64_t>(1, images - 1);
  out.duplicates.captions_group = at::arange(images * kCosmosCaptions).view({images, kCosmosCaptions});
  if (images > 2) out.duplicates.captions_group[2][0] = out.duplicates.captions_group[1][1].item<std::int64_t>();
  return out;
}

/// Returns the tensors that require a gradient, in a fixed order.
inline std::vector<at::Tensor> cosmos_leaves(const Features& features) {
  std::vector<at::Tensor> out;
  for (const auto* views : {&features.images, &features.texts})
    for (const auto& [name, view] : *views)
      for_each_tensor(view, [&](const at::Tensor& tensor) {
        if (tensor.defined() && tensor.requires_grad()) out.push_back(tensor);
      });
  return out;
}

}  // namespace tessera
