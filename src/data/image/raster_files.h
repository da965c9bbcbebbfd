#pragma once
// Images in formats that few data sets use: BMP, GIF and TIFF. Pixels equal those of Pillow's convert("RGB"), with these
// exceptions and rules: alpha is dropped, and 16-bit values keep their upper 8 bits (Pillow clips them for gray TIFF files).

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include <tessera/config/fields.h>

namespace tessera {

/// Returns the size in the header; nullopt if the header is truncated or not understood. For a GIF it is the size of the
/// screen, enlarged if necessary to hold the first image; for a TIFF the size of the first image after applying its orientation.
std::optional<config::Size> bmp_size(std::string_view file);
std::optional<config::Size> gif_size(std::string_view file);
std::optional<config::Size> tiff_size(std::string_view file);

/// Returns the pixels [height, width, 3] of a file of this size; for a GIF or TIFF, of its first image. Throws SampleError
/// `bad_image` if the file is damaged, truncated, or of a variant that is not supported, which the message names.
std::vector<std::uint8_t> decode_bmp(std::string_view file, const config::Size& size);
std::vector<std::uint8_t> decode_gif(std::string_view file, const config::Size& size);
std::vector<std::uint8_t> decode_tiff(std::string_view file, const config::Size& size);

}  // namespace tessera
