#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include <src/data/shapes/background.h>

namespace tessera::shapes {
namespace {

constexpr std::int64_t kCells = 12;  // cells per side of the coarse noise

Color random_tint(Tone tone, Random& random) {
  static constexpr std::array<std::array<double, 2>, 3> kLevels = {{{205, 243}, {118, 160}, {22, 58}}};
  const auto& range = kLevels[static_cast<std::size_t>(tone)];
  const double level = random.uniform(range[0], range[1]);
  const auto channel = [&] { return level + random.uniform(-11, 11); };
  const double red = channel();
  const double green = channel();
  const double blue = channel();
  return {red, green, blue};
}

std::uint8_t to_byte(double value) {
  return static_cast<std::uint8_t>(std::clamp(value, 0.0, 255.0) + 0.5);
}

// Fills an image with color(x, y), where x and y are in 0..1.
template <class Function>
Image fill(std::int64_t side, Function color) {
  Image image{side, side, std::vector<std::uint8_t>(static_cast<std::size_t>(side * side * 3))};
  std::uint8_t* out = image.pixels.data();
  const double step = 1.0 / static_cast<double>(side);
  for (std::int64_t row = 0; row < side; ++row) {
    for (std::int64_t column = 0; column < side; ++column) {
      const Color c = color((static_cast<double>(column) + 0.5) * step, (static_cast<double>(row) + 0.5) * step);
      *out++ = to_byte(c.red);
      *out++ = to_byte(c.green);
      *out++ = to_byte(c.blue);
    }
  }
  return image;
}

Image gradient(Tone tone, Random& random, std::int64_t side) {
  const Color from = random_tint(tone, random);
  const Color to = random_tint(tone, random);
  const double a = random.uniform(-1, 1);
  const double b = random.uniform(-1, 1);
  const double low = std::min(a, 0.0) + std::min(b, 0.0);
  const double span = std::abs(a) + std::abs(b) + 1e-6;
  return fill(side, [=](double x, double y) { return towards(from, to, (a * x + b * y - low) / span); });
}

// Returns smooth gray noise, equal in all channels, with a fine grain on top.
Image noise(Tone tone, Random& random, std::int64_t side) {
  const Color base = random_tint(tone, random);
  std::array<std::array<double, kCells + 1>, kCells + 1> grid{};
  for (auto& row : grid)
    for (double& value : row) value = random.uniform(-16, 16);
  std::uint32_t bits = 0;
  int left = 0;
  return fill(side, [&](double x, double y) {
    const double u = x * kCells;
    const double v = y * kCells;
    const auto i = static_cast<std::size_t>(v);
    const auto j = static_cast<std::size_t>(u);
    const double s = u - static_cast<double>(j);
    const double t = v - static_cast<double>(i);
    const double upper = grid[i][j] + (grid[i][j + 1] - grid[i][j]) * s;
    const double lower = grid[i + 1][j] + (grid[i + 1][j + 1] - grid[i + 1][j]) * s;
    if (left == 0) {
      bits = random.next();
      left = 4;
    }
    const double grain = static_cast<double>(bits & 255) / 255 * 8 - 4;
    bits >>= 8;
    --left;
    const double value = upper + (lower - upper) * t + grain;
    return Color{base.red + value, base.green + value, base.blue + value};
  });
}

Image blobs(Tone tone, Random& random, std::int64_t side) {
  struct Blob {
    double x;
    double y;
    double inverse_square;
    Color color;
  };
  const Color base = random_tint(tone, random);
  std::vector<Blob> list;
  const std::int64_t count = 3 + random.below(3);
  for (std::int64_t i = 0; i < count; ++i) {
    const double x = random.uniform();
    const double y = random.uniform();
    const double radius = random.uniform(0.2, 0.45);
    list.push_back({x, y, 1 / (radius * radius), random_tint(tone, random)});
  }
  return fill(side, [&](double x, double y) {
    Color c = base;
    for (const Blob& blob : list) {
      const double d = ((x - blob.x) * (x - blob.x) + (y - blob.y) * (y - blob.y)) * blob.inverse_square;
      if (d < 1) c = towards(c, blob.color, (1 - d) * (1 - d));
    }
    return c;
  });
}

}  // namespace

Image draw_background(Tone tone, Random& random, std::int64_t side) {
  switch (static_cast<Backdrop>(random.below(4))) {
    case Backdrop::tint: {
      const Color tint = random_tint(tone, random);
      return fill(side, [=](double, double) { return tint; });
    }
    case Backdrop::gradient:
      return gradient(tone, random, side);
    case Backdrop::noise:
      return noise(tone, random, side);
    default:
      return blobs(tone, random, side);
  }
}

}  // namespace tessera::shapes
