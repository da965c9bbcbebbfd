#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>

#include "src/report/class_colors.h"
#include <tessera/base/error.h>

namespace tessera::report {
namespace {

constexpr int kTooNear = 60;  // colors at a smaller distance are hard to distinguish
// Shades for classes named after the same color: towards white for values above 0, towards black for values below 0.
constexpr std::array<double, 5> kShades = {0, 0.5, -0.4, 0.75, -0.65};

Color from_hex(std::uint32_t color) {
  return {static_cast<std::uint8_t>(color >> 16), static_cast<std::uint8_t>(color >> 8),
          static_cast<std::uint8_t>(color)};
}

const std::map<std::string, std::uint32_t>& named_colors() {
  static const std::map<std::string, std::uint32_t> colors = {
      {"red", 0xE03131},    {"orange", 0xF08C00}, {"yellow", 0xF2D024},    {"green", 0x2F9E44}, {"cyan", 0x22C3D6},
      {"blue", 0x2B5FD9},   {"purple", 0x8E3BBF}, {"violet", 0x7A4FE0},    {"pink", 0xF27CB4},  {"magenta", 0xD6249F},
      {"brown", 0x8A5A33},  {"black", 0x26282B},  {"white", 0xF4F4F2},     {"gray", 0x868A90},  {"grey", 0x868A90},
      {"teal", 0x0F8F88},   {"navy", 0x1B2F73},   {"turquoise", 0x2FC7B5}, {"beige", 0xDCC9A3}, {"gold", 0xD4A017},
      {"silver", 0xB8BCC2}, {"maroon", 0x7D1F2B}, {"olive", 0x7F8A2A},     {"lime", 0x94D82D}};
  return colors;
}

Color shaded(const Color& color, double shade) {
  Color out;
  const double end = shade > 0 ? 255 : 0;
  for (std::size_t c = 0; c < out.size(); ++c)
    out[c] = static_cast<std::uint8_t>(color[c] + std::abs(shade) * (end - color[c]) + 0.5);
  return out;
}

bool near(const Color& a, const Color& b) {
  int squares = 0;
  for (std::size_t c = 0; c < a.size(); ++c) squares += (a[c] - b[c]) * (a[c] - b[c]);
  return squares < kTooNear * kTooNear;
}

}  // namespace

Color palette_color(std::int64_t index) {
  constexpr std::array<std::uint32_t, 10> kPalette = {0x1F77B4, 0xFF7F0E, 0x2CA02C, 0xD62728, 0x9467BD,
                                                      0x8C564B, 0xE377C2, 0xBCBD22, 0x17BECF, 0xFFBB78};
  if (index >= 0 && index < std::ssize(kPalette)) return from_hex(kPalette[static_cast<std::size_t>(index)]);
  // Beyond the fixed colors, hues are a golden angle apart.
  const double hue = std::fmod(0.5 + 0.618033988749895 * static_cast<double>(index), 1.0) * 6;
  const auto channel = [&](double shift) {
    const double x = std::fmod(hue + shift, 6.0);
    const double level = std::clamp(std::abs(x - 3) - 1, 0.0, 1.0);
    return static_cast<std::uint8_t>(70 + 160 * level);
  };
  return {channel(0), channel(4), channel(2)};
}

std::optional<Color> color_in(const std::string& name) {
  std::string word;
  for (const char letter : name + " ") {
    if (std::isalpha(static_cast<unsigned char>(letter)) != 0) {
      word += static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
      continue;
    }
    if (const auto found = named_colors().find(word); found != named_colors().end()) return from_hex(found->second);
    word.clear();
  }
  return std::nullopt;
}

std::vector<Color> class_colors(const std::vector<std::string>& names) {
  std::vector<std::optional<Color>> named;
  std::vector<Color> taken;
  std::map<Color, std::size_t> uses;
  for (const std::string& name : names) {
    named.push_back(color_in(name));
    if (!named.back()) continue;
    const std::size_t use = uses[*named.back()]++;
    named.back() = shaded(*named.back(), kShades[use % kShades.size()]);
    taken.push_back(*named.back());
  }
  const auto free = [&](const Color& color) {
    return std::none_of(taken.begin(), taken.end(), [&](const Color& other) { return near(color, other); });
  };
  const std::int64_t enough = 4 * std::ssize(names);  // number of palette colors in which to search for free ones
  std::vector<Color> out;
  std::int64_t next = 0;
  for (const auto& color : named) {
    while (!color && next < enough && !free(palette_color(next))) ++next;
    out.push_back(color ? *color : palette_color(next++));
  }
  return out;
}

std::string css_color(const Color& color) {
  return concat("rgb(", int{color[0]}, ",", int{color[1]}, ",", int{color[2]}, ")");
}

std::string css_color(std::int64_t index) {
  return css_color(palette_color(index));
}

}  // namespace tessera::report
