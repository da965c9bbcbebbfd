#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include <tessera/base/random.h>

namespace tessera::shapes {

enum class Split : std::uint32_t { train, validation, test, held_out };

/// What a stream of random numbers of one sample decides; captions take caption, caption + 1, ...
enum Part : std::uint64_t { scene_part = 0, background_part = 1, negative_part = 2, parts_part = 3, shape_part = 4, caption_part = 16 };

struct SceneKey {
  std::uint64_t seed = 0;
  Split split = Split::train;
  std::int64_t index = 0;

  Random random(std::uint64_t part) const {
    return Random(seed, Purpose::shapes, {static_cast<std::uint64_t>(split), static_cast<std::uint64_t>(index), part});
  }
};

/// Places are shares of the picture's width and height, lengths of its shorter side; y points down.
struct Object {
  int shape = 0;
  int color = 0;
  int texture = 0;
  int size = 0;
  double x = 0;
  double y = 0;
  double radius = 0;
  double tilt = 0;   // tan of half the angle of rotation
  double shade = 1;  // factor on the color's brightness
  int variant = 0;   // direction of stripes
};

enum class Tone : int { light, gray, dark };

struct Scene {
  std::vector<Object> objects;  // largest first
  Tone tone = Tone::light;
};

/// What the picture shows, without its pixels. objects: [fewest, most].
Scene make_scene(const SceneKey& key, const std::array<std::int64_t, 2>& objects);

/// How far the shape reaches from its center, in radii.
double reach(int shape);

}  // namespace tessera::shapes
