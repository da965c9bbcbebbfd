#pragma once

#include <ATen/ATen.h>

#include "src/objectives/captioning.h"
#include <tessera/base/text.h>

namespace tessera {

constexpr std::int64_t kCaseIds = 11, kCaseIdWidth = 4, kCasePatches = 3, kCaseWidth = 6, kCaseLongest = 5;

/// Features of four images with captions of 5, 3, 1 and 0 ids, and with boxes and phrases. Absent patches, boxes and ids hold
/// invalid values.
struct DescribedImages {
  SharedParameters shared;
  at::Tensor patches, patch_mask, ids, mask, corners, box_mask, phrase_ids, phrase_mask;

  DescribedImages() {
    at::manual_seed(3);
    shared.token_embedding = at::randn({kCaseIds, kCaseIdWidth}, at::kDouble).requires_grad_(true);
    patch_mask = at::arange(kCasePatches).unsqueeze(0) < at::tensor({3, 2, 3, 1}, at::kLong).unsqueeze(1);
    patches = at::randn({4, kCasePatches, kCaseWidth}, at::kDouble);
    patches.masked_fill_(patch_mask.logical_not().unsqueeze(2), std::nan(""));
    patches.requires_grad_(true);
    mask = at::arange(kCaseLongest).unsqueeze(0) < at::tensor({5, 3, 1, 0}, at::kLong).unsqueeze(1);
    ids = at::randint(kCaseIds, {4, kCaseLongest}, at::kLong).masked_fill(~mask, -7);
    box_mask = at::tensor({1, 1, 1, 0, 0, 0, 1, 1}).view({4, 2}).to(at::kBool);
    const at::Tensor lengths = at::tensor({2, 4, 1, 3, 0, 2, 0, 3}, at::kLong).view({4, 2, 1});
    phrase_mask = at::arange(4).view({1, 1, 4}) < lengths;
    phrase_ids = at::randint(kCaseIds, {4, 2, 4}, at::kLong).masked_fill(~phrase_mask, 1 << 30);
    const at::Tensor first = 0.5 * at::rand({4, 2, 2}), size = 0.5 * at::rand({4, 2, 2});
    corners = at::cat({first, first + size}, 2).masked_fill(box_mask.logical_not().unsqueeze(2), std::nan(""));
  }
  std::shared_ptr<Captioning> objective(const std::string& settings) {
    at::manual_seed(4);
    std::string yaml = "{" + settings + "}";
    if (settings.find("decoder:") == std::string::npos)
      yaml.insert(1, settings.empty() ? "decoder: {context_length: 5, layers: 2, heads: 2}" : "decoder: {context_length: 5, layers: 2, heads: 2}, ");
    const auto made = objectives().make({"captioning", config::parse_yaml(yaml, "test")}, "objective",
                                        {.embed_dim = 6, .shared = &shared, .image_width = kCaseWidth, .vocab_size = kCaseIds});
    made->to(at::kDouble);
    const at::NoGradGuard no_grad;
    for (const at::Tensor& parameter : made->parameters()) at::Tensor(parameter).add_(0.3 * at::randn_like(parameter));
    return std::dynamic_pointer_cast<Captioning>(made);
  }
  Features features() const {
    Features out;
    TowerFeatures& image = out.images["image"];
    image.encoder_tokens = patches;
    image.mask = patch_mask;
    image.boxes = {corners, box_mask};
    out.texts["caption"].input = text_input(ids, mask);
    out.texts[kPhrases].input = text_input(phrase_ids, phrase_mask);
    out.texts[kPhrases].present = phrase_mask.any(2);
    return out;
  }
  /// Returns the images at these positions.
  DescribedImages at(const std::vector<std::int64_t>& places) const {
    DescribedImages out = *this;
    const at::Tensor index = at::tensor(places, at::kLong);
    for (at::Tensor* tensor : {&out.patches, &out.patch_mask, &out.ids, &out.mask, &out.corners, &out.box_mask, &out.phrase_ids, &out.phrase_mask})
      *tensor = tensor->detach().index_select(0, index);
    out.patches.requires_grad_(true);
    return out;
  }
};

}  // namespace tessera
