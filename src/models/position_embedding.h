#pragma once

#include <string>

#include <ATen/core/Tensor.h>

#include <tessera/config/fields.h>

namespace tessera {

/// Resizes position embeddings [prefix + h*w, width] from `old_grid` to `grid`, with half-pixel centers. `resampling` is a value of the
/// ViT's setting position_resampling: bicubic with antialias (ATen's _upsample_bicubic2d_aa, as OpenCLIP does on load), bicubic without, or
/// bilinear with antialias. The first `prefix` rows are copied. If the grids are equal, the input is returned. Computes in at least float32.
at::Tensor resize_position_embedding(const at::Tensor& embedding, config::Size grid, config::Size old_grid,
                                     std::int64_t prefix, const std::string& resampling = "antialiased");

/// Resizes position embeddings [1, h*w, width] from `old_grid` to `grid` as GroupViT does: bicubic (a = -0.75),
/// half-pixel centers, without antialias. If the grids are equal, the input is returned. Computes in at least float32.
at::Tensor resample_position_grid(const at::Tensor& embedding, config::Size grid, config::Size old_grid);

/// Resizes text positions [length, width] to [context_length, width] by linear interpolation with half-pixel centers, clamped at the ends.
at::Tensor resize_text_position_embedding(const at::Tensor& embedding, std::int64_t context_length);

/// Resizes text positions [length, width] as Long-CLIP does (arXiv 2403.15378, 3.1). The first `kept` positions do not change. The
/// positions after them are stretched by f = (context_length - kept) / (length - kept), so that position `kept + i` of the table moves to
/// `kept + f * i`. Positions between two moved positions are interpolated linearly; positions after the last moved position are
/// extrapolated from the last two. For example, with kept = 20, f = 4 stretches 77 positions to 248. If context_length is below `length`,
/// returns the first context_length positions. Computes in at least float32. Throws c10::Error if fewer than two positions must be
/// stretched.
at::Tensor stretch_text_position_embedding(const at::Tensor& embedding, std::int64_t context_length, std::int64_t kept);

/// Returns the square grid that has this many patches, or {0, 0} if there is none.
config::Size square_grid(std::int64_t patches);

/// Resizes stored position embeddings to `grid`. The grid of the stored embeddings is unknown: it is taken to be `grid` if the number of
/// positions agrees, otherwise a square. Anything that cannot be a position embedding of this width is returned unchanged.
at::Tensor fit_position_embedding(const at::Tensor& stored, config::Size grid, std::int64_t prefix, std::int64_t width,
                                  const std::string& resampling = "antialiased");

}  // namespace tessera
