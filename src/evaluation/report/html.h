#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/data/sample.h>

namespace tessera::report {

/// & < > " as entities; bytes that are not UTF-8 as U+FFFD.
std::string escape(std::string_view text);

/// A number with so many digits after the point.
std::string fixed(double value, int digits);

/// data:image/png (small pictures) or data:image/jpeg, base64.
std::string data_uri(const Image& image);

/// <img> with the picture inline; `alt` is escaped. Small pictures are enlarged without blur.
std::string img(const Image& image, const std::string& alt);

/// A colour per class: distinct, readable on light and dark.
std::array<std::uint8_t, 3> class_colour(std::int64_t index);
std::string css_colour(std::int64_t index);

/// The style sheet of the page.
std::string style();

}  // namespace tessera::report
