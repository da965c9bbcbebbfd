#pragma once
// Decoders of image files. Alpha is dropped, and 16-bit colors keep their upper 8 bits. Pixels equal those of Pillow's convert("RGB"), except
// that Pillow clips the values of 16-bit gray images.

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/data/source.h>
#include <tessera/preprocessing.h>

namespace tessera {

/// Reads numbers from a file that may be truncated; bytes beyond its end read as 0.
class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes, bool big_endian = false) : bytes_(bytes), big_endian_(big_endian) {}

  std::size_t size() const { return bytes_.size(); }
  std::uint8_t byte(std::size_t at) const { return at < bytes_.size() ? static_cast<std::uint8_t>(bytes_[at]) : std::uint8_t{0}; }
  std::uint64_t number(std::size_t at, std::size_t count) const {
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < count; ++i) value = value << 8 | byte(at + (big_endian_ ? i : count - 1 - i));
    return value;
  }
  std::uint32_t u16(std::size_t at) const { return static_cast<std::uint32_t>(number(at, 2)); }
  std::uint32_t u32(std::size_t at) const { return static_cast<std::uint32_t>(number(at, 4)); }

 private:
  std::string_view bytes_;
  bool big_endian_;
};

/// Throws SampleError `bad_image`.
[[noreturn]] inline void bad_image(const std::string& text) {
  throw SampleError("bad_image", text);
}

/// Reduces the values of a 16-bit gray image to 8 bits.
struct GrayLevels {
  std::int64_t range = 65535;            // Decoding::gray_range
  std::optional<std::uint32_t> largest;  // of the values so far

  std::uint8_t of(std::uint32_t value) {
    largest = std::max(value, largest.value_or(0));
    return gray_level(value, range);
  }
};

/// Returns the size in the header, or nullopt if the header is truncated or not understood. For a GIF, this is the size of its screen,
/// enlarged if necessary to hold the first image. For a TIFF, this is the size of its first image after applying the orientation.
std::optional<config::Size> bmp_size(std::string_view file);
std::optional<config::Size> gif_size(std::string_view file);
std::optional<config::Size> tiff_size(std::string_view file);

/// Returns the first number of each field in the first directory of a TIFF file, by the field's tag. EXIF data are such a file, too.
std::map<std::uint32_t, std::int64_t> tiff_numbers(std::string_view file);

/// Returns the pixels [height, width, 3] of a file of this size. If it has several images, these are the pixels of the first one. Throws
/// SampleError `bad_image` if the file is damaged or truncated, or if its variant is not supported; the message names the variant.
std::vector<std::uint8_t> decode_bmp(std::string_view file, const config::Size& size);
std::vector<std::uint8_t> decode_gif(std::string_view file, const config::Size& size);
std::vector<std::uint8_t> decode_png(std::string_view file, const config::Size& size, GrayLevels& gray);
std::vector<std::uint8_t> decode_tiff(std::string_view file, const config::Size& size, GrayLevels& gray);
std::vector<std::uint8_t> decode_webp(std::string_view file, const config::Size& size);

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

/// Decodes to interleaved RGB as Pillow does: with libjpeg's slow integer DCT and fancy upsampling, and for Adobe's CMYK with Pillow's
/// formula. At full scale the pixels of a region equal those of the whole image. The file is always read to its end, so that all requests
/// agree on whether it is damaged. It is `truncated` if its bytes end before the last row. `height` and `width` are the size in its header.
/// Throws SampleError `bad_image` or `truncated`.
JpegPixels decode_jpeg(std::string_view file, std::int64_t height, std::int64_t width, const JpegRequest& request,
                       std::vector<std::uint8_t>& pixels);

/// Converts cyan, magenta and yellow (0 to 255) to RGB by Pillow's formula. `light` is 255 minus the amount of black ink.
void ink_to_rgb(const std::array<int, 3>& inks, int light, std::uint8_t* pixel);

/// The values in a PNG file, with 1 byte each, or with 2 bytes (the upper one first) if `bits` is 16: gray levels, indices or channels.
struct PngValues {
  int bits = 0, channels = 0;
  bool palette = false;
  std::vector<std::uint8_t> bytes;
};
PngValues read_png_values(std::string_view file, const config::Size& size);

}  // namespace tessera
