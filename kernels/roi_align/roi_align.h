#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/parallel.h"
#include "kernels/status.h"
#include "kernels/types.h"

/// RoIAlign (Mask R-CNN, He et al. 2017, section 3) of feature maps with channels last. A box is divided into bins. The
/// value of a bin is the mean of the features at points on a regular grid in the bin. The feature at a point is
/// interpolated between the four cells around the point. Cell (y, x) has its center at (y, x) of the sampling grid.
/// `aligned` shifts boxes by half a cell, so that a box from 0 to 1 covers cell 0. A point more than one cell outside
/// of the map counts as 0. A point that is less far outside takes the value at the nearest cell center. Because the
/// points form a grid, a bin's value is sum over y, x of a(y) b(x) f(y, x), with separate weights for each axis.
///
/// Sums are float32. Results do not depend on the number of threads and are the same in every run, because the backward
/// pass gathers each cell's gradient from the boxes of the cell's image, in the order of the boxes. If a coordinate of
/// a box is not finite, the box's values are NaN, and so is the gradient of its whole image.
namespace tessera::kernels {

struct RoiAlignProblem {
  std::int64_t images = 0;    ///< B, at least 1
  std::int64_t height = 0;    ///< H, at least 1
  std::int64_t width = 0;     ///< W, at least 1
  std::int64_t channels = 0;  ///< C, at least 1
  std::int64_t boxes = 0;     ///< K, may be 0
  std::int64_t bin_rows = 1, bin_columns = 1;
  std::int64_t sampling_ratio = 0;  ///< points per bin and axis; if 0 or less, the bin's size, rounded up
  bool aligned = true;              ///< if false, boxes are not shifted, and are at least one cell wide and high
  DataType type = DataType::kFloat32;
  const float* corners = nullptr;       ///< [K, 4]: left, top, right, bottom in cells
  const std::int64_t* image = nullptr;  ///< [K]: the image of each box, in 0 .. B - 1
};

struct RoiAlignForward {
  RoiAlignProblem problem;
  const void* features = nullptr;  ///< [B, H, W, C]
  void* out = nullptr;             ///< [K, bin_rows, bin_columns, C]
  void* workspace = nullptr;       ///< roi_align_workspace() bytes
};

struct RoiAlignBackward {
  RoiAlignProblem problem;
  const std::int64_t* order = nullptr;  ///< [K]: the indices of the boxes, sorted by image
  const std::int64_t* first = nullptr;  ///< [B + 1]: the boxes of image b are order[first[b]] .. order[first[b + 1] - 1]
  const void* gradient = nullptr;       ///< [K, bin_rows, bin_columns, C]
  void* of_features = nullptr;          ///< out [B, H, W, C]
  void* workspace = nullptr;            ///< roi_align_workspace() bytes
};

/// Returns a failure with a one-line message that names the first bad argument.
Status check(const RoiAlignForward& arguments);
Status check(const RoiAlignBackward& arguments);

/// Returns the size of the workspace, which is the same for both passes and all devices.
std::size_t roi_align_workspace(const RoiAlignProblem& problem);

namespace cpu {
Status roi_align_forward(const RoiAlignForward& arguments, const Parallel& parallel = {});
Status roi_align_backward(const RoiAlignBackward& arguments, const Parallel& parallel = {});
}  // namespace cpu

/// These functions run on the current device, asynchronously on `stream` (a cudaStream_t).
namespace cuda {
Status roi_align_forward(const RoiAlignForward& arguments, void* stream);
Status roi_align_backward(const RoiAlignBackward& arguments, void* stream);
}  // namespace cuda
namespace emulation {
Status roi_align_forward(const RoiAlignForward& arguments, void* stream);
Status roi_align_backward(const RoiAlignBackward& arguments, void* stream);
}  // namespace emulation

}  // namespace tessera::kernels
