#pragma once

#include <cstdint>
#include <string>

#include <tessera/sample.h>

namespace tessera {

/// A non-owning view of a part of an interleaved RGB image; `stride` is the number of bytes from one row to the next.
struct PixelView {
  const std::uint8_t* data = nullptr;
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::int64_t stride = 0;
};

enum class Filter { bicubic, bilinear };

/// Returns the filter of this name (Preprocessing::interpolation).
Filter filter_named(const std::string& name);

/// A box in a view. Its edges may cut through pixels; a pixel that is partly inside counts as inside.
struct SourceBox {
  double top = 0;
  double left = 0;
  double height = 0;
  double width = 0;
};

/// Resizes to height x width with antialiasing, in two 8-bit passes. The result equals Pillow 13's, bit for bit. Pixels outside the view
/// are never read. Only the part `window` of the resized image is computed, so that time and memory do not grow with the parts that a crop discards.
Image resample(const PixelView& view, std::int64_t height, std::int64_t width, Filter filter,
               const Box& window);

/// Computes the whole resized image.
Image resample(const PixelView& view, std::int64_t height, std::int64_t width, Filter filter);

/// Flips the rows of an interleaved RGB image horizontally. `stride` is the number of bytes from one row to the next.
void mirror_rows(std::uint8_t* pixels, std::int64_t height, std::int64_t width, std::int64_t stride);

/// Writes an interleaved image [H, W, 3] as planes [3, H, W] to `out`.
void write_planes(const Image& image, std::uint8_t* out);

/// Resizes the box to height x width and writes it to `out` as interleaved RGB; `mirrored` flips it horizontally. For a box of
/// whole pixels the result is the same as for a view that consists of only these pixels.
void resample_box(const PixelView& view, const SourceBox& box, std::int64_t height, std::int64_t width, Filter filter,
                  bool mirrored, std::uint8_t* out);

}  // namespace tessera
