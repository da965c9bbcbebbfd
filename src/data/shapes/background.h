#pragma once

#include <cstdint>

#include <src/data/shapes/scene.h>
#include <tessera/base/random.h>
#include <tessera/data/sample.h>

namespace tessera::shapes {

/// An RGB color with channels in 0..255.
struct Color {
  double red;
  double green;
  double blue;
};

/// Returns the color that lies at this share of the way from `a` to `b`.
inline Color towards(const Color& a, const Color& b, double share) {
  return {a.red + (b.red - a.red) * share, a.green + (b.green - a.green) * share, a.blue + (b.blue - a.blue) * share};
}

/// Draws a tint, a gradient, noise or soft blobs. The background is almost gray everywhere (channels within 30 of each other), so it never
/// has an object's color. The first draw from `random` chooses the Backdrop; make_scene() relies on this.
Image draw_background(Tone tone, Random& random, std::int64_t side);

}  // namespace tessera::shapes
