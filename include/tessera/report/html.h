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

/// A color per class: distinct, readable on light and dark.
std::array<std::uint8_t, 3> class_color(std::int64_t index);
std::string css_color(std::int64_t index);

/// The picture under the colors of its mask [height, width]; `background` and ignored pixels (255) stay as they are, only
/// paler.
Image color_by_class(const Image& image, const std::vector<std::uint8_t>& mask, std::int64_t background);

/// Names and values in a card; empty for none.
std::string fact_card(const std::vector<std::pair<std::string, std::string>>& facts);

/// A whole page: `title` is escaped, `head` (further elements of <head>) and `body` are HTML.
std::string page(const std::string& title, const std::string& head, const std::string& body);

}  // namespace tessera::report
