#pragma once

#include <string>

#include <ATen/core/Tensor.h>

#include <tessera/config/fields.h>

namespace tessera {

/// Position embeddings [prefix + h*w, width] of the grid `old_grid` brought to the grid `grid`: bicubic, with antialias unless told otherwise,
/// half-pixel centers (ATen's _upsample_bicubic2d_aa, what OpenCLIP does on load); the first `prefix` rows are copied.
/// The same grid is returned unchanged. Computed in float32 at least.
at::Tensor resize_position_embedding(const at::Tensor& embedding, config::Size grid, config::Size old_grid,
                                     std::int64_t prefix, bool antialias = true);

/// Position embeddings [1, h*w, width] of the grid `old_grid` brought to the grid `grid` as GroupViT does: bicubic (a =
/// -0.75), half-pixel centers, without antialias. The same grid is returned unchanged. Computed in float32 at least.
at::Tensor resample_position_grid(const at::Tensor& embedding, config::Size grid, config::Size old_grid);

/// resize_position_embedding for text [length, width] -> [context_length, width]: linear, half-pixel centers, clamped at the ends.
at::Tensor resize_text_position_embedding(const at::Tensor& embedding, std::int64_t context_length);

/// The square grid of that many patches; {0, 0} if there is none.
config::Size square_grid(std::int64_t patches);

/// resize_position_embedding for a stored tensor whose grid is not known: `grid` itself when the sizes agree, a square
/// otherwise. Whatever cannot be a position embedding of this width is returned unchanged.
at::Tensor fit_position_embedding(const at::Tensor& stored, config::Size grid, std::int64_t prefix, std::int64_t width,
                                  bool antialias = true);

}  // namespace tessera
