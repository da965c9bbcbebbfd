#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <initializer_list>
#include <vector>

#include <src/data/shapes/outline.h>

namespace tessera::shapes {
namespace {

struct Point {
  double x;
  double y;
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
      const double wx = x - edge.a.x;
      const double wy = y - edge.a.y;
      const double t = std::clamp((wx * edge.e.x + wy * edge.e.y) * edge.inverse_square, 0.0, 1.0);
      const double dx = wx - edge.e.x * t;
      const double dy = wy - edge.e.y * t;
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
constexpr std::array<Point, 10> kTenth = {{{0, -1},
                                           {0.5877852522924731, -0.8090169943749475},
                                           {0.9510565162951535, -0.3090169943749474},
                                           {0.9510565162951535, 0.3090169943749474},
                                           {0.5877852522924731, 0.8090169943749475},
                                           {0, 1},
                                           {-0.5877852522924731, 0.8090169943749475},
                                           {-0.9510565162951535, 0.3090169943749474},
                                           {-0.9510565162951535, -0.3090169943749474},
                                           {-0.5877852522924731, -0.8090169943749475}}};

Polygon star() {
  std::vector<Point> points;
  for (std::size_t i = 0; i < 10; ++i) {
    const double radius = i % 2 == 0 ? 1.2 : 0.52;
    points.push_back({kTenth[i].x * radius, kTenth[i].y * radius});
  }
  return Polygon(points);
}

Polygon cross() {
  const double a = 1.02;
  const double b = 0.36;
  return {{-b, -a}, {b, -a}, {b, -b}, {a, -b}, {a, b}, {b, b}, {b, a}, {-b, a}, {-b, b}, {-a, b}, {-a, -b}, {-b, -b}};
}

Polygon hexagon() {
  const double r = 1.08;
  const double h = r * 0.8660254037844386;
  return {{-r, 0}, {-r / 2, -h}, {r / 2, -h}, {r, 0}, {r / 2, h}, {-r / 2, h}};
}

double disc(double x, double y, double radius) {
  return std::sqrt(x * x + y * y) - radius;
}

double box(double x, double y, double half) {
  const double dx = std::abs(x) - half;
  const double dy = std::abs(y) - half;
  const double ox = std::max(dx, 0.0);
  const double oy = std::max(dy, 0.0);
  return std::sqrt(ox * ox + oy * oy) + std::min(std::max(dx, dy), 0.0);
}

// Returns the signed distance to a heart: a square that stands on a corner, with a disc on each upper side.
double heart(double x, double y) {
  constexpr double kHalf = 0.56;
  constexpr double kDiagonal = 0.7071067811865476;
  const double v = y + 0.02;
  const double square = box((x + v) * kDiagonal, (v - x) * kDiagonal, kHalf);
  const double lobe = disc(std::abs(x) - kHalf * kDiagonal, v + kHalf * kDiagonal, kHalf);
  return std::min(square, lobe);
}

}  // namespace

double signed_distance(int shape, double x, double y) {
  static const Polygon kTriangle = {{0, -1.18}, {1.02, 0.62}, {-1.02, 0.62}};
  static const Polygon kStar = star();
  static const Polygon kCross = cross();
  static const Polygon kDiamond = {{0, -1.2}, {0.8, 0}, {0, 1.2}, {-0.8, 0}};
  static const Polygon kHexagon = hexagon();
  switch (shape) {
    case 0:
      return disc(x, y, 0.98);
    case 1:
      return box(x, y, 0.8);
    case 2:
      return kTriangle.distance(x, y);
    case 3:
      return kStar.distance(x, y);
    case 4:
      return kCross.distance(x, y);
    case 5:
      return kDiamond.distance(x, y);
    case 6:
      return std::abs(disc(x, y, 0.71)) - 0.28;
    case 7:
      return heart(x, y);
    case 8:
      return kHexagon.distance(x, y);
    default:
      return std::max(disc(x, y, 1.03), -disc(x - 0.5, y + 0.18, 0.78));
  }
}

}  // namespace tessera::shapes
