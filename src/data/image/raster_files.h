#pragma once
// Images in all formats but JPEG. Alpha is dropped, and 16-bit colors keep their upper 8 bits. Pixels equal those of Pillow's
// convert("RGB"), except that Pillow clips the values of 16-bit gray images.

#include <algorithm>
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

/// The values in a PNG file, with 1 byte each, or with 2 bytes (the upper one first) if `bits` is 16: gray levels, indices or channels.
struct PngValues {
  int bits = 0, channels = 0;
  bool palette = false;
  std::vector<std::uint8_t> bytes;
};
PngValues read_png_values(std::string_view file, const config::Size& size);

}  // namespace tessera
