#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include <tessera/data/image/transforms.h>

namespace tessera {

/// Which part of a JPEG image to decode, and at which scale.
struct JpegRequest {
  int eighths = 8;    // scale: 8 is full size; less uses a smaller inverse DCT
  bool whole = true;  // false: decode at least `region`
  Box region{};       // in pixels of the full scale
};

/// The part of the scaled image that was decoded; its first pixel is (top, left).
struct JpegPixels {
  std::int64_t top = 0, left = 0;
  std::int64_t height = 0, width = 0;
};

/// Decodes to interleaved RGB with libjpeg's slow integer DCT and fancy upsampling, as Pillow does, and Adobe's CMYK by Pillow's
/// formula. At full scale the pixels of a region equal those of the whole image. The file is always read to its end, so that
/// every request agrees on whether it is damaged. height and width: from its header. Throws SampleError `bad_image` or
/// `truncated`.
JpegPixels decode_jpeg(std::string_view file, std::int64_t height, std::int64_t width, const JpegRequest& request,
                       std::vector<std::uint8_t>& pixels);

/// Converts cyan, magenta and yellow (0 to 255) to RGB by Pillow's formula. light: 255 minus black.
void ink_to_rgb(const std::array<int, 3>& inks, int light, std::uint8_t* pixel);

}  // namespace tessera
