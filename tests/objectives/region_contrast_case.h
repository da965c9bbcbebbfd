#pragma once

#include <vector>

#include <ATen/ATen.h>

#include <tessera/objectives/objective.h>

namespace tessera {

/// Features of images with up to R boxes each, and one phrase and up to H negatives per box.
struct RegionCase {
  at::Tensor dense;      // [B, N, D]
  at::Tensor corners;    // float [B, R, 4], fractions that float32 represents exactly
  at::Tensor box;        // bool [B, R], true for boxes that exist
  at::Tensor phrases;    // [B, R, D]
  at::Tensor phrase;     // bool [B, R], true for phrases that exist
  at::Tensor ids;        // int64 [B, R, L]
  at::Tensor negatives;  // [B, R * H, D]
  at::Tensor negative;   // bool [B, R * H], true for negatives that exist
  at::Tensor grids{};    // int64 [B, 2]: rows and columns of patches; undefined for square grids

  std::vector<at::Tensor> leaves() const { return {dense, phrases, negatives}; }
  std::int64_t negatives_each() const { return negative.size(1) / box.size(1); }

  Features features() const {
    Features out;
    TowerFeatures& image = out.images["image"];
    image.dense = dense;
    image.boxes = {corners, box};
    image.grids = grids;
    TowerFeatures& text = out.texts["phrases"];
    text.global = phrases;
    text.present = phrase;
    text.input = text_input(ids, ids.ne(0));
    out.texts["phrase_negatives"].global = negatives;
    out.texts["phrase_negatives"].present = negative;
    return out;
  }

  /// Returns a case of the images `first` to `first + count - 1`, as new leaf tensors.
  RegionCase part(std::int64_t first, std::int64_t count) const {
    const auto own = [&](const at::Tensor& values) {
      return values.detach().narrow(0, first, count).clone().requires_grad_(values.requires_grad());
    };
    return {own(dense), own(corners), own(box), own(phrases), own(phrase), own(ids), own(negatives), own(negative)};
  }
};

/// Returns four images of 3 x 3 patches with up to 3 boxes, each with up to 2 negatives. Embeddings have width 4. Image 1 has no
/// box, and box 1 of image 3 has no phrase. Box 1 of image 0 and box 0 of image 2 have the same phrase. Box 2 of image 0 and
/// box 0 of image 3 have almost the same phrase embedding. In image 0, box 1 has one negative and box 2 has none. The first
/// negative of image 2 is nearer to its box than the box's phrase is.
inline RegionCase region_case() {
  at::manual_seed(11);
  const auto random = [](at::IntArrayRef sizes) { return at::randn(sizes, at::kDouble); };
  const auto bools = [](std::vector<int> values, at::IntArrayRef sizes) {
    return at::tensor(values, at::kInt).to(at::kBool).view(sizes);
  };
  const std::vector<float> corners = {
      0,     0,     1,     1,      0.125f, 0.25f, 0.625f, 0.75f, 0.5f, 0.5f, 0.875f, 1,  //
      0,     0,     0,     0,      0,      0,     0,      0,     0,    0,    0,      0,  //
      0.25f, 0,     0.75f, 0.5f,   0,      0,     0,      0,     0,    0,    0,      0,  //
      0,     0.25f, 1,     0.375f, 0.25f,  0.25f, 0.5f,   0.5f,  0,    0,    0,      0};
  const at::Tensor common = random({4});  // added to patches and phrases, so that phrases are nearer to boxes than negatives are
  RegionCase out{random({4, 9, 4}) + common,
                 at::tensor(corners).view({4, 3, 4}),
                 bools({1, 1, 1, 0, 0, 0, 1, 0, 0, 1, 1, 0}, {4, 3}),
                 random({4, 3, 4}) + common,
                 bools({1, 1, 1, 0, 1, 0, 1, 0, 0, 1, 0, 0}, {4, 3}),
                 at::arange(1, 37).view({4, 3, 3}).clone(),
                 random({4, 6, 4}),
                 bools({1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 0, 1, 0, 0, 1, 1, 1, 1, 0, 0}, {4, 6})};
  out.ids[2][0].copy_(out.ids[0][1]);
  out.phrases[3][0].copy_(out.phrases[0][2] + 0.05 * random({4}));
  out.negatives[2][0].copy_(out.dense[2].mean(0));
  for (at::Tensor* each : {&out.dense, &out.phrases, &out.negatives}) each->requires_grad_(true);
  return out;
}

}  // namespace tessera
