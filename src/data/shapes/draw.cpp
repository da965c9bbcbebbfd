#include <algorithm>
#include <cmath>

#include <src/data/shapes/background.h>
#include <src/data/shapes/draw.h>
#include <src/data/shapes/outline.h>

namespace tessera::shapes {
namespace {

struct Paint {
  Color color;
  Color second;  // second tone of stripes, dots and checks
};

// Returns the two tones of the color with index `color` in shapes_color_names(). The second tone is lighter for some colors and darker for
// others, so that the color's name still fits it.
Paint paint(int color, double shade) {
  constexpr Color kWhite = {255, 255, 255};
  constexpr Color kBlack = {0, 0, 0};
  static constexpr std::array<Color, 8> kColors = {{{222, 38, 38},
                                                      {247, 142, 20},
                                                      {246, 222, 48},
                                                      {44, 160, 66},
                                                      {50, 208, 220},
                                                      {38, 84, 220},
                                                      {132, 52, 178},
                                                      {247, 128, 196}}};
  static constexpr std::array<bool, 8> kLighter = {true, false, false, true, false, true, true, false};
  const auto index = static_cast<std::size_t>(color);
  const Color base = towards(kBlack, kColors[index], shade);
  return {base, kLighter[index] ? towards(base, kWhite, 0.72) : towards(base, kBlack, 0.52)};
}

double coverage(double distance) {
  return std::clamp(0.5 - distance, 0.0, 1.0);
}

// Returns u's distance to the nearest border of a stripe, negated if u is on a stripe. Stripes have width 1 and centers at even numbers.
double stripe(double u) {
  const double t = u - 2 * std::floor((u + 1) / 2);  // [-1, 1)
  return std::abs(t) - 0.5;
}

// Returns the share of the second tone at (x, y). Coordinates are relative to the object's center, in radii. `pixels` is the radius in
// pixels.
double second_tone(const Object& object, double x, double y, double pixels) {
  constexpr double kDiagonal = 0.7071067811865476;
  constexpr std::array<Color, 4> kDirections = {
      {{1, 0, 0}, {0, 1, 0}, {kDiagonal, kDiagonal, 0}, {kDiagonal, -kDiagonal, 0}}};
  switch (object.texture) {
    case 1: {
      const Color& d = kDirections[static_cast<std::size_t>(object.variant)];
      constexpr double kWidth = 0.29;
      return coverage(stripe((x * d.red + y * d.green) / kWidth) * kWidth * pixels);
    }
    case 2: {
      constexpr double kSpacing = 0.56;
      const double shift = object.variant % 2 == 0 ? 0.0 : 0.5;
      const double u = x / kSpacing + shift;
      const double v = y / kSpacing + shift;
      const double du = (u - std::floor(u + 0.5)) * kSpacing;
      const double dv = (v - std::floor(v + 0.5)) * kSpacing;
      return coverage((std::sqrt(du * du + dv * dv) - 0.17) * pixels);
    }
    case 3: {
      constexpr double kWidth = 0.4;
      const double a = coverage(stripe(x / kWidth + 0.5) * kWidth * pixels);
      const double b = coverage(stripe(y / kWidth + 0.5) * kWidth * pixels);
      return a * (1 - b) + b * (1 - a);
    }
    default:
      return 0;
  }
}

void blend(std::uint8_t* pixel, const Color& color, double share) {
  const std::array<double, 3> channels = {color.red, color.green, color.blue};
  for (std::size_t c = 0; c < 3; ++c)
    pixel[c] = static_cast<std::uint8_t>(pixel[c] + (channels[c] - pixel[c]) * share + 0.5);
}

void draw_object(const Object& object, std::uint8_t number, Picture& picture) {
  const std::int64_t width = picture.image.width, height = picture.image.height;
  const double scale = static_cast<double>(std::min(width, height));
  const double center_x = object.x * static_cast<double>(width), center_y = object.y * static_cast<double>(height);
  const double pixels = object.radius * scale;
  const double extent = object.radius * reach(object.shape) * scale + 1;
  const auto first = [&](double center) {
    return std::max<std::int64_t>(0, static_cast<std::int64_t>(center - extent));
  };
  const auto last = [&](double center, std::int64_t side) {
    return std::min<std::int64_t>(side - 1, static_cast<std::int64_t>(center + extent));
  };
  const double square = object.tilt * object.tilt;
  const double cosine = (1 - square) / (1 + square);
  const double sine = 2 * object.tilt / (1 + square);
  const Paint tones = paint(object.color, object.shade);
  const Color edge = towards(tones.color, {0, 0, 0}, 0.55);
  const double edge_width = 0.8 * scale / 64;
  std::int64_t top = height;
  std::int64_t left = width;
  std::int64_t bottom = -1;
  std::int64_t right = -1;
  for (std::int64_t row = first(center_y); row <= last(center_y, height); ++row) {
    for (std::int64_t column = first(center_x); column <= last(center_x, width); ++column) {
      const double px = (static_cast<double>(column) + 0.5 - center_x) / pixels;
      const double py = (static_cast<double>(row) + 0.5 - center_y) / pixels;
      const double x = px * cosine + py * sine;
      const double y = py * cosine - px * sine;
      const double distance = signed_distance(object.shape, x, y) * pixels;
      const double share = coverage(distance);
      if (share <= 0) continue;
      Color color =
          object.texture == 0 ? tones.color : towards(tones.color, tones.second, second_tone(object, x, y, pixels));
      color = towards(color, edge, coverage(-distance - edge_width));
      const auto at = static_cast<std::size_t>(row * width + column);
      blend(&picture.image.pixels[at * 3], color, share);
      if (share < 0.5) continue;
      picture.owner[at] = number;
      top = std::min(top, row);
      bottom = std::max(bottom, row);
      left = std::min(left, column);
      right = std::max(right, column);
    }
  }
  picture.boxes.push_back({top, left, bottom - top + 1, right - left + 1});
}

// Returns the upper left part of the image.
Image cut(const Image& image, config::Size size) {
  Image out{size.height, size.width, {}};
  for (std::int64_t row = 0; row < size.height; ++row) {
    const auto begin = image.pixels.begin() + row * image.width * 3;
    out.pixels.insert(out.pixels.end(), begin, begin + size.width * 3);
  }
  return out;
}

}  // namespace

Picture draw(const Scene& scene, const SceneKey& key, config::Size size) {
  Picture picture;
  Random random = key.random(background_part);
  picture.image = cut(draw_background(scene.tone, random, std::max(size.height, size.width)), size);
  picture.owner.assign(static_cast<std::size_t>(size.height * size.width), Picture::kNobody);
  for (std::size_t i = 0; i < scene.objects.size(); ++i)
    draw_object(scene.objects[i], static_cast<std::uint8_t>(i), picture);
  return picture;
}

}  // namespace tessera::shapes
