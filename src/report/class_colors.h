#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tessera::report {

using Color = std::array<std::uint8_t, 3>;  // red, green, blue

/// Returns the color of a class or curve by its index; the colors are distinct and readable on light and dark backgrounds.
Color palette_color(std::int64_t index);

/// Returns the color that the name mentions (red for "red circle"), if there is one.
std::optional<Color> color_in(const std::string& name);

/// Returns a color for each class. A class named after a color gets that color; several classes named after the same color get different
/// shades. All other classes get palette colors that are not close to the colors already used.
std::vector<Color> class_colors(const std::vector<std::string>& names);

/// Returns "rgb(1,2,3)".
std::string css_color(const Color& color);
std::string css_color(std::int64_t index);

}  // namespace tessera::report
