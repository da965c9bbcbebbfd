#pragma once

#include <cstdint>

#include <src/data/shapes/scene.h>
#include <tessera/base/random.h>
#include <tessera/data/sample.h>

namespace tessera::shapes {

/// Channels in 0..255.
struct Color {
  double red;
  double green;
  double blue;
};

/// A tint, a gradient, noise or soft blobs, almost grey everywhere (channels within 30 of each other), so that no
/// background has an object's color.
/// Its first draw of `random` chooses among the kinds of Backdrop, as make_scene() foresees.
Image draw_background(Tone tone, Random& random, std::int64_t side);

}  // namespace tessera::shapes
