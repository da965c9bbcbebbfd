#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <tessera/data/sample.h>
#include <tessera/report/class_colors.h>

namespace tessera::report {

/// data:image/png (small pictures) or data:image/jpeg, base64.
std::string data_uri(const Image& image);

/// <img> with the picture inline; `alt` is escaped. Small pictures are enlarged without blur.
std::string img(const Image& image, const std::string& alt);

/// The picture, gray, under the flat translucent colors of its mask [height, width], each region with an outline; `background`
/// and ignored pixels (255) stay as they are, only paler. `colors` are the classes'; those of the palette where there are none.
Image color_by_class(const Image& image, const std::vector<std::uint8_t>& mask, std::int64_t background,
                     const std::vector<Color>& colors = {});

}  // namespace tessera::report
