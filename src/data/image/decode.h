#pragma once

#include <string_view>
#include <vector>

#include "src/data/image/image_file.h"
#include "src/data/image/resample.h"
#include <tessera/data/image/transforms.h>

namespace tessera {

/// A box in an image, in pixels, and the size that it will be resized to.
struct Crop {
  Box box{};
  config::Size size;
};

/// The decoded image, or the part of it that the crops need, at full or reduced scale.
struct DecodedPart {
  PixelView pixels;
  std::int64_t top = 0, left = 0;  // position of the first pixel in the scaled image
  int eighths = 8;                 // scale in eighths of full size

  /// Converts a box of the full-size image to the coordinates of the decoded part.
  SourceBox at(const Box& box) const;
};

/// Reads an image's header and checks that the image may be decoded. Throws SampleError if it is not in a supported format, has
/// no size or is too large.
ImageHeader check_image(std::string_view file, std::int64_t max_pixels);

/// Decodes the part of the image that the crops need. With `scaling`, a JPEG is decoded at 1/8, 1/4 or 1/2 scale if every crop then has at
/// least its final size (Crop::size). The smallest such scale is used. The pixels are valid until this thread decodes the next image.
DecodedPart decode_for(std::string_view file, const ImageHeader& header, const std::vector<Crop>& crops, bool scaling);

}  // namespace tessera
