#pragma once

namespace tessera::shapes {

/// Signed distance from (x, y) to the border of the shape of radius 1 around the origin, y down; negative inside. Exact
/// near the border, which is all that anti-aliasing asks for.
double signed_distance(int shape, double x, double y);

}  // namespace tessera::shapes
