#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tessera::report {

using Color = std::array<std::uint8_t, 3>;  // red, green, blue

/// One of many colors, distinct and readable on light and dark: of a class by its index, or of a curve.
Color palette_color(std::int64_t index);

/// The color that a word of the name is ("red circle": red); none if there is none.
std::optional<Color> color_in(const std::string& name);

/// A color for each class: that of its name, where it names one, in another shade each time it comes again; for the others
/// those of the palette that are none of these.
std::vector<Color> class_colors(const std::vector<std::string>& names);

/// "rgb(1,2,3)".
std::string css_color(const Color& color);
std::string css_color(std::int64_t index);

}  // namespace tessera::report
