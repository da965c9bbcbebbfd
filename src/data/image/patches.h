#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include <tessera/batch.h>
#include <tessera/config/fields.h>
#include <tessera/preprocessing.h>

namespace tessera {

/// Returns the grid (rows and columns of patches) that an image of height x width pixels is resized to. The grid has
/// ceil(scale * height / patch) rows and ceil(scale * width / patch) columns, at least one of each, where scale is the
/// largest number, up to 100, that gives at most max_patches patches. It is found by the binary search that transformers uses for
/// SigLIP 2's NaFlex (Tschannen et al. 2025), so both give the same grid. Throws c10::Error if an argument is below 1.
config::Size patch_grid(std::int64_t height, std::int64_t width, config::Size patch, std::int64_t max_patches);

/// Returns the size in pixels to which an image is resized with resize_mode naflex, which keeps the image's aspect ratio. The patches of
/// patch_grid() fill this size exactly.
config::Size size_in_patches(std::int64_t height, std::int64_t width, const Preprocessing& preprocessing);

/// Returns the grid of exactly `patches` patches that is nearest to a square. It has at least as many columns as rows.
config::Size fullest_grid(std::int64_t patches);

/// Writes an image's planes [3, H, W] as patches to `out`: [rows * columns, 3 * h * w], row-major, each patch flattened as
/// [3, h, w]. The image's sides must be multiples of the patch's.
void write_patches(const std::uint8_t* planes, config::Size image, config::Size patch, std::uint8_t* out);

/// Makes a batch from images uint8 [3, h, w] that the evaluation transform returned (EvaluationSample::pixels). The batch holds pixels or,
/// with resize_mode naflex, patches. Each image's patches are padded to max_patches, so that the features of all batches have the same
/// number of patches. Throws c10::Error if there are no images.
TowerInput image_batch(const std::vector<at::Tensor>& images, const Preprocessing& preprocessing);

}  // namespace tessera
