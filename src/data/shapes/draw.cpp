#include <algorithm>
#include <cmath>
#include <initializer_list>

#include <src/data/shapes/draw.h>
#include <tessera/base/random.h>

namespace tessera::shapes {
namespace {

// An RGB color with channels in 0..255.
struct Color {
  double red, green, blue;
};

// Returns the color that lies at this share of the way from `a` to `b`.
Color towards(const Color& a, const Color& b, double share) {
  return {a.red + (b.red - a.red) * share, a.green + (b.green - a.green) * share, a.blue + (b.blue - a.blue) * share};
}

constexpr std::int64_t kCells = 12;  // cells per side of the coarse noise

Color random_tint(Tone tone, Random& random) {
  static constexpr std::array<std::array<double, 2>, 3> kLevels = {{{205, 243}, {118, 160}, {22, 58}}};
  const auto& range = kLevels[static_cast<std::size_t>(tone)];
  const double level = random.uniform(range[0], range[1]);
  const auto channel = [&] { return level + random.uniform(-11, 11); };
  const double red = channel(), green = channel(), blue = channel();
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
  const double a = random.uniform(-1, 1), b = random.uniform(-1, 1);
  const double low = std::min(a, 0.0) + std::min(b, 0.0), span = std::abs(a) + std::abs(b) + 1e-6;
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
    const double u = x * kCells, v = y * kCells;
    const auto i = static_cast<std::size_t>(v);
    const auto j = static_cast<std::size_t>(u);
    const double s = u - static_cast<double>(j), t = v - static_cast<double>(i);
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
    double x, y, inverse_square;
    Color color;
  };
  const Color base = random_tint(tone, random);
  std::vector<Blob> list;
  const std::int64_t count = 3 + random.below(3);
  for (std::int64_t i = 0; i < count; ++i) {
    const double x = random.uniform(), y = random.uniform(), radius = random.uniform(0.2, 0.45);
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

// Draws a tint, a gradient, noise or soft blobs. The background is almost gray everywhere (channels within 30 of each other), so it never
// has an object's color. The first draw from `random` chooses the Backdrop; make_scene() relies on this.
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

struct Point {
  double x, y;
};

// The signed distance to a closed polygon. Its sign follows from how often a horizontal ray crosses the polygon.
class Polygon {
 public:
  Polygon(std::initializer_list<Point> points) : Polygon(std::vector<Point>(points)) {}
  explicit Polygon(const std::vector<Point>& points) {
    for (std::size_t i = 0; i < points.size(); ++i) {
      const Point a = points[i];
      const Point b = points[(i + 1) % points.size()];
      const Point e = {b.x - a.x, b.y - a.y};
      edges_.push_back({a, b.y, e, 1 / (e.x * e.x + e.y * e.y)});
    }
  }

  double distance(double x, double y) const {
    double nearest = 1e9;
    bool inside = false;
    for (const Edge& edge : edges_) {
      const double wx = x - edge.a.x, wy = y - edge.a.y;
      const double t = std::clamp((wx * edge.e.x + wy * edge.e.y) * edge.inverse_square, 0.0, 1.0);
      const double dx = wx - edge.e.x * t, dy = wy - edge.e.y * t;
      nearest = std::min(nearest, dx * dx + dy * dy);
      const bool down = y >= edge.a.y;
      if (down != (y >= edge.end_y)) inside ^= (edge.e.x * wy > edge.e.y * wx) == down;
    }
    return inside ? -std::sqrt(nearest) : std::sqrt(nearest);
  }

 private:
  struct Edge {
    Point a;
    double end_y;
    Point e;
    double inverse_square;
  };
  std::vector<Edge> edges_;
};

// Unit vectors at multiples of 36 degrees, clockwise from straight up. They are constants because the last digit of libm's results differs
// between machines.
constexpr double kSin36 = 0.5877852522924731, kCos36 = 0.8090169943749475, kSin72 = 0.9510565162951535, kCos72 = 0.3090169943749474;
constexpr std::array<Point, 10> kTenth = {{{0, -1}, {kSin36, -kCos36}, {kSin72, -kCos72}, {kSin72, kCos72}, {kSin36, kCos36},
                                           {0, 1}, {-kSin36, kCos36}, {-kSin72, kCos72}, {-kSin72, -kCos72}, {-kSin36, -kCos36}}};

Polygon star() {
  std::vector<Point> points;
  for (std::size_t i = 0; i < 10; ++i) {
    const double radius = i % 2 == 0 ? 1.2 : 0.52;
    points.push_back({kTenth[i].x * radius, kTenth[i].y * radius});
  }
  return Polygon(points);
}

Polygon cross() {
  const double a = 1.02, b = 0.36;
  return {{-b, -a}, {b, -a}, {b, -b}, {a, -b}, {a, b}, {b, b}, {b, a}, {-b, a}, {-b, b}, {-a, b}, {-a, -b}, {-b, -b}};
}

Polygon hexagon() {
  const double r = 1.08, h = r * 0.8660254037844386;
  return {{-r, 0}, {-r / 2, -h}, {r / 2, -h}, {r, 0}, {r / 2, h}, {-r / 2, h}};
}

double disc(double x, double y, double radius) {
  return std::sqrt(x * x + y * y) - radius;
}

double box(double x, double y, double half) {
  const double dx = std::abs(x) - half, dy = std::abs(y) - half, ox = std::max(dx, 0.0);
  const double oy = std::max(dy, 0.0);
  return std::sqrt(ox * ox + oy * oy) + std::min(std::max(dx, dy), 0.0);
}

// Returns the signed distance to a heart: a square that stands on a corner, with a disc on each upper side.
double heart(double x, double y) {
  constexpr double kHalf = 0.56;
  constexpr double kDiagonal = 0.7071067811865476;
  const double v = y + 0.02, square = box((x + v) * kDiagonal, (v - x) * kDiagonal, kHalf);
  const double lobe = disc(std::abs(x) - kHalf * kDiagonal, v + kHalf * kDiagonal, kHalf);
  return std::min(square, lobe);
}

// Returns the signed distance from (x, y) to the border of a shape that has radius 1 and is centered at the origin; y points down. The
// distance is negative inside the shape. It is exact only near the border, but that is enough for anti-aliasing.
double signed_distance(int shape, double x, double y) {
  static const Polygon kTriangle = {{0, -1.18}, {1.02, 0.62}, {-1.02, 0.62}};
  static const Polygon kStar = star();
  static const Polygon kCross = cross();
  static const Polygon kDiamond = {{0, -1.2}, {0.8, 0}, {0, 1.2}, {-0.8, 0}};
  static const Polygon kHexagon = hexagon();
  if (shape == 0) return disc(x, y, 0.98);
  if (shape == 1) return box(x, y, 0.8);
  if (shape == 2) return kTriangle.distance(x, y);
  if (shape == 3) return kStar.distance(x, y);
  if (shape == 4) return kCross.distance(x, y);
  if (shape == 5) return kDiamond.distance(x, y);
  if (shape == 6) return std::abs(disc(x, y, 0.71)) - 0.28;
  if (shape == 7) return heart(x, y);
  if (shape == 8) return kHexagon.distance(x, y);
  return std::max(disc(x, y, 1.03), -disc(x - 0.5, y + 0.18, 0.78));
}

struct Paint {
  Color color;
  Color second;  // second tone of stripes, dots and checks
};

// Returns the two tones of the color with index `color` in shapes_color_names(). The second tone is lighter for some colors and darker for
// others, so that the color's name still fits it.
Paint paint(int color, double shade) {
  constexpr Color kWhite = {255, 255, 255};
  constexpr Color kBlack = {0, 0, 0};
  static constexpr std::array<Color, 8> kColors = {{{222, 38, 38}, {247, 142, 20}, {246, 222, 48}, {44, 160, 66},
                                                    {50, 208, 220}, {38, 84, 220}, {132, 52, 178}, {247, 128, 196}}};
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
      const double shift = object.variant % 2 == 0 ? 0.0 : 0.5, u = x / kSpacing + shift;
      const double v = y / kSpacing + shift, du = (u - std::floor(u + 0.5)) * kSpacing;
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

void draw_object(const Object& object, std::uint8_t number, Drawing& drawing) {
  const std::int64_t width = drawing.image.width, height = drawing.image.height;
  const double scale = static_cast<double>(std::min(width, height));
  const double center_x = object.x * static_cast<double>(width), center_y = object.y * static_cast<double>(height);
  const double pixels = object.radius * scale, extent = object.radius * reach(object.shape) * scale + 1;
  const auto first = [&](double center) {
    return std::max<std::int64_t>(0, static_cast<std::int64_t>(center - extent));
  };
  const auto last = [&](double center, std::int64_t side) {
    return std::min<std::int64_t>(side - 1, static_cast<std::int64_t>(center + extent));
  };
  const double square = object.tilt * object.tilt, cosine = (1 - square) / (1 + square);
  const double sine = 2 * object.tilt / (1 + square);
  const Paint tones = paint(object.color, object.shade);
  const Color edge = towards(tones.color, {0, 0, 0}, 0.55);
  const double edge_width = 0.8 * scale / 64;
  std::int64_t top = height, left = width, bottom = -1, right = -1;
  for (std::int64_t row = first(center_y); row <= last(center_y, height); ++row) {
    for (std::int64_t column = first(center_x); column <= last(center_x, width); ++column) {
      const double px = (static_cast<double>(column) + 0.5 - center_x) / pixels;
      const double py = (static_cast<double>(row) + 0.5 - center_y) / pixels, x = px * cosine + py * sine;
      const double y = py * cosine - px * sine, distance = signed_distance(object.shape, x, y) * pixels;
      const double share = coverage(distance);
      if (share <= 0) continue;
      Color color =
          object.texture == 0 ? tones.color : towards(tones.color, tones.second, second_tone(object, x, y, pixels));
      color = towards(color, edge, coverage(-distance - edge_width));
      const auto at = static_cast<std::size_t>(row * width + column);
      blend(&drawing.image.pixels[at * 3], color, share);
      if (share < 0.5) continue;
      drawing.owner[at] = number;
      top = std::min(top, row);
      bottom = std::max(bottom, row);
      left = std::min(left, column);
      right = std::max(right, column);
    }
  }
  drawing.boxes.push_back({top, left, bottom - top + 1, right - left + 1});
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

Drawing draw(const Scene& scene, const SceneKey& key, config::Size size) {
  Drawing drawing;
  Random random = key.random(background_part);
  drawing.image = cut(draw_background(scene.tone, random, std::max(size.height, size.width)), size);
  drawing.owner.assign(static_cast<std::size_t>(size.height * size.width), Drawing::kNobody);
  for (std::size_t i = 0; i < scene.objects.size(); ++i)
    draw_object(scene.objects[i], static_cast<std::uint8_t>(i), drawing);
  return drawing;
}

}  // namespace tessera::shapes
