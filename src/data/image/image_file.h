#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/data/sample.h>

namespace tessera {

enum class ImageKind { jpeg, png, webp, bmp, gif, tiff, other };

/// What the first bytes of a file tell. `height` and `width` are 0 where the header is cut or not understood.
struct ImageHeader {
  ImageKind kind = ImageKind::other;
  std::string description;  // "a PNG file", "text (\"<!DOCTYPE html>...\")", "zeros", ... for messages
  std::int64_t height = 0;
  std::int64_t width = 0;
};

ImageHeader read_image_header(std::string_view file);

/// Class indices of a mask file (PNG: grey of 1 to 8 bits, or palette, whose indices count, not its colors). Throws
/// SampleError `bad_mask`.
struct Mask {
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::vector<std::uint8_t> values;  // [height, width]
};
Mask decode_mask(std::string_view file, std::int64_t max_pixels = kDefaultMaxPixels);

/// Meters of a depth file (PNG: grey of 16 bits, `units` to the meter, 0 where the depth is unknown), [height, width]. Throws
/// SampleError `bad_depth`.
std::vector<float> decode_depth(std::string_view file, double units, std::int64_t max_pixels = kDefaultMaxPixels);

}  // namespace tessera
