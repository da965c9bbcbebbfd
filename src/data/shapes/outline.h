#pragma once

namespace tessera::shapes {

/// Returns the signed distance from (x, y) to the border of the shape of radius 1 around the origin; it is negative inside, and y points
/// down. It is exact near the border, which is enough for anti-aliasing.
double signed_distance(int shape, double x, double y);

}  // namespace tessera::shapes
