#pragma once

#include <string>

#include <ATen/core/Tensor.h>

#include <tessera/config/fields.h>

namespace tessera {

/// Resizes position embeddings [prefix + h*w, width] from `old_grid` to `grid`: bicubic, half-pixel centers, with
/// antialias by default (ATen's _upsample_bicubic2d_aa, as OpenCLIP does on load); the first `prefix` rows are copied.
/// If the grids are equal, the input is returned. Computes in at least float32.
at::Tensor resize_position_embedding(const at::Tensor& embedding, config::Size grid, config::Size old_grid,
                                     std::int64_t prefix, bool antialias = true);

/// Resizes position embeddings [1, h*w, width] from `old_grid` to `grid` as GroupViT does: bicubic (a = -0.75),
/// half-pixel centers, without antialias. If the grids are equal, the input is returned. Computes in at least float32.
at::Tensor resample_position_grid(const at::Tensor& embedding, config::Size grid, config::Size old_grid);

/// resize_position_embedding for text, [length, width] -> [context_length, width]: linear, half-pixel centers, clamped
/// at the ends.
at::Tensor resize_text_position_embedding(const at::Tensor& embedding, std::int64_t context_length);

/// Resizes text positions [length, width] as Long-CLIP does (arXiv 2403.15378, 3.1): the first `kept` stay, and the
/// others are stretched by f = (context_length - kept) / (length - kept). The table's position kept + i moves to kept +
/// f i, with linear interpolation between; after the last one the line through the last two is continued. 77 positions
/// with 20 kept give 248 with f = 4. A context_length below `length` keeps the first positions. Computes in at least
/// float32. Throws c10::Error if fewer than two positions follow the kept ones.
at::Tensor stretch_text_position_embedding(const at::Tensor& embedding, std::int64_t context_length, std::int64_t kept);

/// Returns the square grid of that many patches, or {0, 0} if there is none.
config::Size square_grid(std::int64_t patches);

/// resize_position_embedding for a stored tensor of unknown grid: assumes `grid` if the sizes agree, otherwise a
/// square. Anything that cannot be a position embedding of this width is returned unchanged.
at::Tensor fit_position_embedding(const at::Tensor& stored, config::Size grid, std::int64_t prefix, std::int64_t width,
                                  bool antialias = true);

}  // namespace tessera
