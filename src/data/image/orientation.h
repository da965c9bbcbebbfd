#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "src/data/image/image_file.h"
#include <tessera/data/image/transforms.h>

namespace tessera {

/// The orientation of an image, as EXIF numbers it from 1 to 8: 1 needs no change; 2 to 4 mirror or rotate by 180 degrees; 5 to 8 exchange
/// rows and columns, too. Sizes and boxes given to these functions are those before turning.

/// Returns the orientation that Pillow's ImageOps.exif_transpose() applies to a file: that of its EXIF data, otherwise of its XMP data,
/// otherwise 1. For TIFF files it is always 1, because decoding turns them.
int exif_orientation(std::string_view file, ImageKind kind);

/// Returns a JPEG or PNG file with EXIF data that give this orientation; the file itself for 1.
std::string with_orientation(std::string file, int orientation);

config::Size turned_size(const config::Size& size, int orientation);
Box turned_box(const Box& box, const config::Size& size, int orientation);
/// Returns the box of the image of `size` (before turning) that turned_box() moves to `box`.
Box box_before_turning(const Box& box, const config::Size& size, int orientation);

/// Turns rows of pixels with `channels` values each.
template <class T>
std::vector<T> turned(std::vector<T> pixels, const config::Size& size, int orientation, std::size_t channels) {
  if (orientation < 2 || orientation > 8) return pixels;
  const auto [height, width] = turned_size(size, orientation);
  const auto place_of = [&, columns = size.width](std::int64_t y, std::int64_t x) {
    const Box from = box_before_turning({y, x, 1, 1}, size, orientation);
    return (from[0] * columns + from[1]) * static_cast<std::ptrdiff_t>(channels);
  };
  const std::ptrdiff_t first = place_of(0, 0), right = place_of(0, 1) - first, down = place_of(1, 0) - first;
  std::vector<T> out(pixels.size());
  auto to = out.begin();
  for (std::int64_t y = 0; y < height; ++y)
    for (std::int64_t x = 0; x < width; ++x)
      to = std::copy_n(pixels.begin() + first + y * down + x * right, channels, to);
  return out;
}

}  // namespace tessera
