#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include <tessera/base/random.h>

namespace tessera::shapes {

/// Returns an enumerator or a number as an index.
constexpr std::size_t at(auto value) {
  return static_cast<std::size_t>(value);
}

enum class Split : std::uint32_t { train, validation, test, held_out };

/// The parts of a sample that have their own stream of random numbers. For caption i, the stream caption_part + i determines the words, and
/// the stream misfit_part + i determines whether the caption fits the image. There are at most 100 captions.
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

/// An object of a scene. `x` and `y` are shares of the image's width and height, and y points down. `radius` is a share of the shorter
/// side.
struct Object {
  int shape = 0;
  int color = 0;
  int texture = 0;
  int size = 0;
  double x = 0;
  double y = 0;
  double radius = 0;
  double tilt = 0;   // tangent of half the rotation angle
  double shade = 1;  // factor for the color's brightness
  int variant = 0;   // direction of the stripes
};

enum class Tone : int { light, gray, dark };

/// The kind of background: one tint, a gradient, noise or soft blobs.
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

/// Returns the upper limit of the setting for the smallest diameter, for scenes with this many objects. Above this limit, the objects would
/// hardly ever fit into an image.
double most_room(std::int64_t objects);

/// Returns the objects and the background of a sample, without pixels. `objects` is the minimum and the maximum number of objects; the
/// maximum is at most kMostObjects. The n-th shape and the n-th color are drawn n^-skew times as often as the first.
Scene make_scene(const SceneKey& key, const std::array<std::int64_t, 2>& objects, const DiameterRange& diameters = kUsualDiameters,
                 std::int64_t skew = 0);

/// Returns how far the shape extends from its center, in radii.
double reach(int shape);

}  // namespace tessera::shapes
