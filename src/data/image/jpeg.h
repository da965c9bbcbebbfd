#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include <tessera/data/image/transforms.h>

namespace tessera {

/// Which part of a JPEG image to decode, and at which scale.
struct JpegRequest {
  int eighths = 8;    // scale in eighths of full size; below 8, a smaller inverse DCT is used
  bool whole = true;  // true: decode the whole image; false: decode `region`, and possibly pixels around it
  Box region{};       // in pixels of the full-size image
};

/// The part of the scaled image that was decoded; its first pixel is (top, left).
struct JpegPixels {
  std::int64_t top = 0, left = 0;
  std::int64_t height = 0, width = 0;
};

/// Decodes to interleaved RGB as Pillow does: with libjpeg's slow integer DCT and fancy upsampling, and for Adobe's CMYK with
/// Pillow's formula. At full scale the pixels of a region equal those of the whole image. The file is always read to its end,
/// so that all requests agree on whether it is damaged. It is `truncated` if its bytes end before the last row. `height` and `width` are
/// the size in its header. Throws SampleError `bad_image` or `truncated`.
JpegPixels decode_jpeg(std::string_view file, std::int64_t height, std::int64_t width, const JpegRequest& request,
                       std::vector<std::uint8_t>& pixels);

/// Converts cyan, magenta and yellow (0 to 255) to RGB by Pillow's formula. `light` is 255 minus the amount of black ink.
void ink_to_rgb(const std::array<int, 3>& inks, int light, std::uint8_t* pixel);

}  // namespace tessera
