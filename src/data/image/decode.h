#pragma once

#include <optional>
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
  double top = 0, left = 0;  // position of the first pixel in the scaled image
  int eighths = 8;           // scale in eighths of full size

  /// Converts a box of the full-size image to the coordinates of the decoded part.
  SourceBox at(const Box& box) const;
};

/// Reads an image's header and checks that the image may be decoded. With exif_rotation, `orientation` is the file's, and `height` and
/// `width` are those of the turned image. Throws SampleError if it is not in a supported format, has no size or is too large.
ImageHeader check_image(std::string_view file, std::int64_t max_pixels, const Decoding& decoding = {});

/// What decoding found that the pixels do not show.
struct ImageNotes {
  int orientation = 1;                        // as in the file, whether or not the image was turned
  std::optional<std::uint32_t> largest_gray;  // largest value of a 16-bit gray image
};

/// Does the same as decode_image() and fills in `notes`.
Image decode_with_notes(std::string_view file, std::int64_t max_pixels, const Decoding& decoding, ImageNotes& notes);

inline bool has_image(const Sample& sample) {
  return !sample.encoded.empty() || !sample.image.empty();
}

/// Returns a fingerprint of a sample's image as the source returns it. It covers the file's bytes if present, otherwise the pixels and the
/// width.
std::uint64_t image_fingerprint(const Sample& sample);

/// Throws the SampleError `no_image` for a sample without an image.
[[noreturn]] void throw_no_image(const Sample& sample);

/// Returns a sample's image, decoding it if necessary. If the image is turned, so are the sample's mask, depth and boxes. Throws SampleError
/// naming the key.
Image take_image(Sample& sample, const Decoding& decoding = {}, ImageNotes* notes = nullptr);

/// Does the same with an image whose pixels are not needed: sets the size of the sample's image and turns mask, depth and boxes. Throws
/// SampleError if the header of the image is damaged.
void take_size(Sample& sample, const Decoding& decoding);

/// Decodes the part of the image that the crops need. With `scaling`, a JPEG is decoded at 1/8, 1/4 or 1/2 scale if every crop then has at
/// least its final size (Crop::size). The smallest such scale is used. The pixels are valid until this thread decodes the next image.
/// `header` is from check_image() with the same `decoding`; the crops are boxes of the turned image.
DecodedPart decode_for(std::string_view file, const ImageHeader& header, const std::vector<Crop>& crops, bool scaling,
                       const Decoding& decoding = {});

}  // namespace tessera
