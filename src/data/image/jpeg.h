#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include <tessera/data/image/transforms.h>

namespace tessera {

/// What is wanted of a JPEG picture.
struct JpegRequest {
  int eighths = 8;    // scale: 8 of 8 is the picture as it is, less is what a smaller inverse DCT gives
  bool whole = true;  // else at least `region`
  Box region{};       // in pixels of the full scale
};

/// What came: rows and columns of the scaled picture, of which the first are (top, left).
struct JpegPixels {
  std::int64_t top = 0, left = 0;
  std::int64_t height = 0, width = 0;
};

/// Decodes to interleaved RGB with libjpeg's slow integer DCT and fancy upsampling, as Pillow does; Adobe's CMYK by
/// Pillow's formula. At full scale the pixels of a region are those that the whole picture has there. The file is read
/// to its end, whatever is wanted of it, so that a file is good or bad for every request. height and width: those that
/// its header gave. Throws SampleError `bad_image` or `truncated`.
JpegPixels decode_jpeg(std::string_view file, std::int64_t height, std::int64_t width, const JpegRequest& request,
                       std::vector<std::uint8_t>& pixels);

/// The color of cyan, magenta and yellow, of 255 each, where `light` is what black leaves of 255: Pillow's formula.
void ink_to_rgb(const std::array<int, 3>& inks, int light, std::uint8_t* pixel);

}  // namespace tessera
