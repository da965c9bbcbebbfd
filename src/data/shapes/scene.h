#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include <tessera/base/random.h>

namespace tessera::shapes {

enum class Split : std::uint32_t { train, validation, test, held_out };

/// What a stream of random numbers of one sample decides. Caption i takes caption_part + i for its words, and misfit_part + i for
/// whether it fits the image; there are at most 100 captions.
enum Part : std::uint64_t {
  scene_part = 0,
  background_part = 1,
  negative_part = 2,
  parts_part = 3,
  shape_part = 4,
  caption_part = 16,
  misfit_part = 1024,
};

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

/// What the background is: one tint, a gradient, noise or soft blobs.
enum class Backdrop : int { tint, gradient, noise, blobs };

struct Scene {
  std::vector<Object> objects;  // largest first
  Tone tone = Tone::light;
  Backdrop backdrop = Backdrop::tint;
};

constexpr std::int64_t kMostObjects = 6;

/// The diameters of the smallest and the largest object, as shares of the shorter side.
using DiameterRange = std::array<double, 2>;
constexpr DiameterRange kUsualDiameters = {0.26, 0.58};

/// So many objects find room if the smallest diameter is at most this.
double most_room(std::int64_t objects);

/// What the image shows, without its pixels. objects: [fewest, most], at most kMostObjects.
Scene make_scene(const SceneKey& key, const std::array<std::int64_t, 2>& objects, const DiameterRange& diameters = kUsualDiameters);

/// How far the shape reaches from its center, in radii.
double reach(int shape);

}  // namespace tessera::shapes
