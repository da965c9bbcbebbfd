#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/sample.h>

namespace tessera {

enum class ImageKind { jpeg, png, webp, bmp, gif, tiff, other };

/// The contents of an image file's header. `height` and `width` are 0 if the header is truncated or not understood.
struct ImageHeader {
  ImageKind kind = ImageKind::other;
  std::string description;  // "a PNG file", "text (\"<!DOCTYPE html>...\")", "nothing but zeros", ... for messages
  std::int64_t height = 0;
  std::int64_t width = 0;
  int orientation = 1;  // how decoding turns the image (orientation.h)
};

/// Reads the kind and the size as stored, with orientation 1.
ImageHeader read_image_header(std::string_view file);

/// Calls `use` with the marker and the content of each segment of a JPEG file before its first scan, until `use` returns true. Bytes
/// between segments are skipped, as in libjpeg.
void for_each_jpeg_segment(std::string_view file,
                           const std::function<bool(std::uint8_t marker, std::string_view content)>& use);

/// The class indices of a mask file, which is a PNG with 1 to 8 bits of gray or with a palette. If there is a palette, its indices are
/// used, not its colors. decode_mask() throws SampleError `bad_mask` for other files.
struct Mask {
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::vector<std::uint8_t> values;  // [height, width]
};
Mask decode_mask(std::string_view file, std::int64_t max_pixels = kDefaultMaxPixels);

/// Decodes a depth file (a 16-bit gray PNG with `units` per meter, 0 where the depth is unknown) to meters, [height, width].
/// Throws SampleError `bad_depth`.
std::vector<float> decode_depth(std::string_view file, double units, std::int64_t max_pixels = kDefaultMaxPixels);

}  // namespace tessera
