#pragma once

#include <array>
#include <cstdint>

#include <ATen/core/Tensor.h>

namespace tessera {

struct RoiAlignSettings {
  std::array<std::int64_t, 2> output_size = {1, 1};  // number of bins per box, in rows and columns
  std::int64_t sampling_ratio = 0;  // number of points per bin and axis; 0 or less: the bin's size in cells, rounded up
  bool aligned =
      true;  // true: a box from 0 to 1 covers cell 0; false: boxes are shifted by half a cell and have at least the size of one cell
};

/// RoIAlign (Mask R-CNN, He et al. 2017): the mean of bilinearly interpolated features in each bin of each box, as in
/// torchvision.ops.roi_align, but with channels last.
/// features  [B, H, W, C]  floating, such as a ViT's tokens [B, H * W, C] arranged as their grid
/// boxes     [K, 4]        floating, left, top, right, bottom in cells of the grid; no gradient
/// image     [K]           int64, the image of each box
/// returns   [K, rows, columns, C]  in the features' type; sums are float32 (float64 for float64)
/// A point more than a cell outside the image counts as 0. With sampling_ratio 0 and `aligned`, a box of size zero has
/// no points and gives 0. A box that is not finite gives NaN; on a GPU, so does a box with an image index that is out of
/// range. The result and the gradient are the same in every run and for any number of threads, except that float64 sums
/// on a GPU have no fixed order. Throws c10::Error naming the tensor that does not fit. Differentiable once.
at::Tensor roi_align(const at::Tensor& features, const at::Tensor& boxes, const at::Tensor& image,
                     const RoiAlignSettings& settings = {});

}  // namespace tessera
