#pragma once

#include <string_view>
#include <vector>

#include "src/data/image/image_file.h"
#include "src/data/image/resample.h"
#include <tessera/data/image/transforms.h>

namespace tessera {

/// A box of a picture, in its pixels, and the size that it will be resized to.
struct Crop {
  Box box{};
  config::Size size;
};

/// What crops are cut from: a picture or a part of it, at full or reduced scale.
struct DecodedPart {
  PixelView pixels;
  std::int64_t top = 0, left = 0;  // of the first pixel, in the scaled picture
  int eighths = 8;                 // scale

  /// Where a box of the full scale lies in `pixels`.
  SourceBox at(const Box& box) const;
};

/// The header of a picture that may be decoded. Throws SampleError: not a picture that we read, no size, too large.
ImageHeader check_image(std::string_view file, std::int64_t max_pixels);

/// Decodes what the crops need. With `scaling`, a JPEG picture comes at the least of 1/8, 1/4, 1/2 and full scale at
/// which no crop is smaller than its size. The pixels stay in this thread's buffer until it decodes the next picture.
DecodedPart decode_for(std::string_view file, const ImageHeader& header, const std::vector<Crop>& crops, bool scaling);

}  // namespace tessera
