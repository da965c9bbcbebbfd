#pragma once
// Pictures in formats that few data sets have: BMP, GIF and TIFF. Pixels are those of Pillow's convert("RGB") unless it says
// otherwise here: alpha is dropped, and of 16 bits the upper 8 count (of grey TIFF files Pillow clips them).

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include <tessera/config/fields.h>

namespace tessera {

/// The size that the header tells; nothing where it is cut off or not understood. Of a GIF it is that of its screen, which
/// grows to hold the first picture; of a TIFF that of its first picture after its orientation.
std::optional<config::Size> bmp_size(std::string_view file);
std::optional<config::Size> gif_size(std::string_view file);
std::optional<config::Size> tiff_size(std::string_view file);

/// The pixels [height, width, 3] of a file of this size; of a GIF and a TIFF the first picture. Throws SampleError `bad_image`:
/// damaged, cut off, or a kind that is not read, which it names.
std::vector<std::uint8_t> decode_bmp(std::string_view file, const config::Size& size);
std::vector<std::uint8_t> decode_gif(std::string_view file, const config::Size& size);
std::vector<std::uint8_t> decode_tiff(std::string_view file, const config::Size& size);

}  // namespace tessera
