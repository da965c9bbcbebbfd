#pragma once

namespace tessera::shapes {

/// Returns the signed distance from (x, y) to the border of a shape that has radius 1 and is centered at the origin; y points down. The
/// distance is negative inside the shape. It is exact only near the border, but that is enough for anti-aliasing.
double signed_distance(int shape, double x, double y);

}  // namespace tessera::shapes
