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

/// Text positions [length, width] brought to another length as Long-CLIP does (arXiv 2403.15378, 3.1): the first `kept` stay,
/// and those behind are stretched by f = (context_length - kept) / (length - kept), so that the position kept + i of the
/// table stands at kept + f i, linear in between; behind the last one the line through the last two goes on. 77 positions
/// with 20 kept give 248 with f = 4. A context_length below `length` takes the first positions as they are. Computed in
/// float32 at least. Throws c10::Error where fewer than two positions stand behind the kept ones.
at::Tensor stretch_text_position_embedding(const at::Tensor& embedding, std::int64_t context_length, std::int64_t kept);

/// The square grid of that many patches; {0, 0} if there is none.
config::Size square_grid(std::int64_t patches);

/// resize_position_embedding for a stored tensor whose grid is not known: `grid` itself when the sizes agree, a square
/// otherwise. Whatever cannot be a position embedding of this width is returned unchanged.
at::Tensor fit_position_embedding(const at::Tensor& stored, config::Size grid, std::int64_t prefix, std::int64_t width,
                                  bool antialias = true);

}  // namespace tessera
