#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include <src/data/shapes/scene.h>
#include <tessera/config/fields.h>
#include <tessera/sample.h>

namespace tessera::shapes {

/// A drawn scene. `owner` [height, width] has, for each pixel, the index in Scene::objects of the object there, or kNobody for the
/// background.
struct Drawing {
  static constexpr std::uint8_t kNobody = 255;
  Image image;
  std::vector<std::uint8_t> owner;
  std::vector<std::array<std::int64_t, 4>> boxes;  // top, left, height, width of each object, tight around its pixels
};

/// Draws a scene with anti-aliasing. Uses only +, -, *, /, sqrt and rounding, so that every machine draws the same pixels.
Drawing draw(const Scene& scene, const SceneKey& key, config::Size size);

}  // namespace tessera::shapes
