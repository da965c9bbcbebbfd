#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/report/class_colors.h"
#include <tessera/data/sample.h>

namespace tessera::report {

/// Returns the image as a data URI in base64; small images are PNG, larger ones JPEG.
std::string data_uri(const Image& image);

/// Returns an <img> element with the image inline; `alt` is escaped. Small images are enlarged without blur.
std::string img(const Image& image, const std::string& alt);

/// Returns the image in gray under a map of `values` [rows, columns]: the smallest value is transparent, greater ones are yellow, orange
/// and red, the greatest is dark red. If all values are equal, nothing is drawn.
Image heat_map(const Image& image, const std::vector<float>& values, std::int64_t rows, std::int64_t columns);

/// Returns the scale of heat_map() with the smallest and the greatest value, as HTML.
std::string heat_scale(const std::vector<float>& values);

/// Returns the image with its mask [height, width] drawn over it. Each region of the mask shows the image in gray under the translucent
/// color of its class, with an outline. Pixels of the class `background` and ignored pixels (255) keep the image's colors, but paler.
/// `colors` are the colors of the first classes; further classes get palette colors.
Image color_by_class(const Image& image, const std::vector<std::uint8_t>& mask, std::int64_t background,
                     const std::vector<Color>& colors = {});

}  // namespace tessera::report
