#pragma once
// Images in formats that few data sets use: BMP, GIF and TIFF. Alpha is dropped, and 16-bit values keep their upper 8 bits.
// Pixels equal those of Pillow's convert("RGB"), except that Pillow clips the 16-bit values of gray TIFF files.

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include <tessera/config/fields.h>

namespace tessera {

/// Returns the size in the header, or nullopt if the header is truncated or not understood. For a GIF, this is the size of its screen,
/// enlarged if necessary to hold the first image. For a TIFF, this is the size of its first image after applying the orientation.
std::optional<config::Size> bmp_size(std::string_view file);
std::optional<config::Size> gif_size(std::string_view file);
std::optional<config::Size> tiff_size(std::string_view file);

/// Returns the pixels [height, width, 3] of a file of this size. For a GIF or TIFF, these are the pixels of its first image. Throws
/// SampleError `bad_image` if the file is damaged or truncated, or if its variant is not supported; the message names the variant.
std::vector<std::uint8_t> decode_bmp(std::string_view file, const config::Size& size);
std::vector<std::uint8_t> decode_gif(std::string_view file, const config::Size& size);
std::vector<std::uint8_t> decode_tiff(std::string_view file, const config::Size& size);

}  // namespace tessera
