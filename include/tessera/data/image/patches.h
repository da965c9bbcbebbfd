#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include <tessera/batch.h>
#include <tessera/config/fields.h>
#include <tessera/preprocessing.h>

namespace tessera {

/// Returns the rows and columns of patches that an image of height x width pixels is resized to: the largest scale at which
/// ceil(scale * height / patch) * ceil(scale * width / patch) <= max_patches, with at least one patch each way. Uses the binary
/// search of SigLIP 2's NaFlex (Tschannen et al. 2025) as implemented in transformers, so that both return the same grid. The
/// scale is at most 100. Throws c10::Error if an argument is below 1.
config::Size patch_grid(std::int64_t height, std::int64_t width, config::Size patch, std::int64_t max_patches);

/// Returns the size of that grid in pixels, for a preprocessing that keeps the images' shapes (naflex).
config::Size size_in_patches(std::int64_t height, std::int64_t width, const Preprocessing& preprocessing);

/// Returns the grid of exactly `patches` patches that is nearest to a square; it is at least as wide as high.
config::Size fullest_grid(std::int64_t patches);

/// Writes an image's planes [3, H, W] as patches to `out`: [rows * columns, 3 * h * w], row-major, each patch flattened as
/// [3, h, w]. The image's sides must be multiples of the patch's.
void write_patches(const std::uint8_t* planes, config::Size image, config::Size patch, std::uint8_t* out);

/// Makes one batch of images uint8 [3, h, w] from the evaluation transform (EvaluationSample::pixels): pixels, or, if images keep
/// their shapes, patches padded to max_patches so that batches of features have the same size. Throws c10::Error without images.
TowerInput image_batch(const std::vector<at::Tensor>& images, const Preprocessing& preprocessing);

}  // namespace tessera
