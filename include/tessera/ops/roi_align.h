#pragma once

#include <array>
#include <cstdint>

#include <ATen/core/Tensor.h>

namespace tessera {

struct RoiAlignSettings {
  std::array<std::int64_t, 2> output_size = {1, 1};  // bins of a box, rows and columns
  std::int64_t sampling_ratio = 0;  // points per bin and axis; 0 or less: the bin's size in cells, rounded up
  bool aligned =
      true;  // a box from 0 to 1 lies on cell 0; false: it lies half a cell off, and is at least one cell in size
};

/// RoIAlign (Mask R-CNN, He et al. 2017): the mean of bilinearly interpolated features in each bin of each box, as
/// torchvision.ops.roi_align has it, with channels last.
/// features  [B, H, W, C]  floating; the tokens [B, H * W, C] of a ViT with their grid
/// boxes     [K, 4]        floating, left, top, right, bottom in cells of the grid; no gradient
/// image     [K]           int64, the image of each box
/// returns   [K, rows, columns, C]  in the features' type; sums are float32 (float64 for float64)
/// A point more than a cell outside the image counts 0; a box without an extent gives 0 (but see aligned), one that is not
/// finite NaN, and on a GPU one of no image, too. The same result and gradient in every run, with any number of threads
/// (float64 on a GPU: but for the order of its sums). Throws c10::Error naming the tensor that does not fit.
/// Differentiable once.
at::Tensor roi_align(const at::Tensor& features, const at::Tensor& boxes, const at::Tensor& image,
                     const RoiAlignSettings& settings = {});

}  // namespace tessera
