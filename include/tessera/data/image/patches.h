#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include <tessera/batch.h>
#include <tessera/config/fields.h>
#include <tessera/preprocessing.h>

namespace tessera {

/// Rows and columns of the patches that an image of height x width pixels is resized to: the largest scale at which
/// ceil(scale * height / patch) * ceil(scale * width / patch) <= max_patches, at least one patch each way, found by the binary
/// search of SigLIP 2's NaFlex (Tschannen et al. 2025) as transformers has it, so that both give the same grid. No scale is above
/// 100. Throws c10::Error where a number is below 1.
config::Size patch_grid(std::int64_t height, std::int64_t width, config::Size patch, std::int64_t max_patches);

/// Pixels of that grid, of a preprocessing whose images keep their shapes.
config::Size size_in_patches(std::int64_t height, std::int64_t width, const Preprocessing& preprocessing);

/// The grid of exactly so many patches that is nearest to a square, at least as wide as high.
config::Size fullest_grid(std::int64_t patches);

/// An image's planes [3, H, W], whose sides are multiples of the patch's, to patches at `out`: [rows * columns, 3 * h * w],
/// row-major, each patch flattened as [3, h, w].
void write_patches(const std::uint8_t* planes, config::Size image, config::Size patch, std::uint8_t* out);

/// Images uint8 [3, h, w] as evaluation's transform gives them (EvaluationSample::pixels), as one view: pixels, or where they keep
/// their shapes patches, padded to max_patches so that batches of features fit together. Throws c10::Error without images.
TowerInput image_batch(const std::vector<at::Tensor>& images, const Preprocessing& preprocessing);

}  // namespace tessera
