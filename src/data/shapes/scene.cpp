#include <algorithm>
#include <string>

#include <c10/util/Exception.h>

#include "src/data/shapes/shapes.h"
#include <src/data/shapes/scene.h>

namespace tessera {

const std::vector<std::string>& shapes_shape_names() {
  static const std::vector<std::string> names = {"circle",  "square", "triangle", "star",    "cross",
                                                 "diamond", "ring",   "heart",    "hexagon", "moon"};
  return names;
}

const std::vector<std::string>& shapes_color_names() {
  static const std::vector<std::string> names = {"red", "orange", "yellow", "green", "cyan", "blue", "purple", "pink"};
  return names;
}

const std::vector<std::string>& shapes_texture_names() {
  static const std::vector<std::string> names = {"plain", "striped", "dotted", "checkered"};
  return names;
}

const std::vector<std::string>& shapes_size_names() {
  static const std::vector<std::string> names = {"small", "medium", "large"};
  return names;
}

bool shapes_held_out_pair(std::int64_t shape, std::int64_t color) {
  return (3 * shape + 1) % 8 == color;
}

namespace shapes {
namespace {

constexpr int kShapes = 10;
constexpr int kColors = 8;
constexpr int kTextures = 4;

// Ranges of the diameters of small, medium and large objects. The ranges have gaps between them, so that, for example, a small and a medium
// object visibly differ in size.
using Diameters = std::array<std::array<double, 2>, 3>;
constexpr Diameters kDiameters = {{{kUsualDiameters[0], 0.30}, {0.37, 0.43}, {0.51, kUsualDiameters[1]}}};

// For scenes with 1, 2, ... objects: {probability of small objects, of medium objects}. The more objects, the smaller they must be to fit.
constexpr std::array<std::array<double, 2>, kMostObjects> kSizeChances = {
    {{0.33, 0.34}, {0.3, 0.4}, {0.45, 0.4}, {0.6, 0.33}, {0.7, 0.25}, {0.7, 0.25}}};

// Scales the diameter ranges of the three sizes linearly, so that together they span `range`.
Diameters stretched(const DiameterRange& range) {
  Diameters out = kDiameters;
  if (range == kUsualDiameters) return out;  // skips the computation below, whose rounding would change existing scenes
  const double factor = (range[1] - range[0]) / (kUsualDiameters[1] - kUsualDiameters[0]);
  for (auto& size : out)
    for (double& end : size) end = range[0] + (end - kUsualDiameters[0]) * factor;
  return out;
}

constexpr double kGap = 0.02;

bool taken(const std::vector<Object>& objects, int Object::*attribute, int value) {
  return std::any_of(objects.begin(), objects.end(), [&](const Object& o) { return o.*attribute == value; });
}

// Draws a number below `count`. Number n is (n + 1)^-skew times as frequent as number 0. Uses only * and /, because their results are the
// same on every machine.
int draw_skewed(int count, std::int64_t skew, Random& random) {
  if (skew == 0) return static_cast<int>(random.below(count));
  const auto weight = [&](int n) {
    double out = 1;
    for (std::int64_t i = 0; i < skew; ++i) out /= n + 1;
    return out;
  };
  double total = 0;
  for (int n = 0; n < count; ++n) total += weight(n);
  double left = random.uniform() * total;
  int n = 0;
  while (n + 1 < count && (left -= weight(n)) >= 0) ++n;
  return n;
}

// Draws the shape and color of one more object. A pair of shape and color never repeats; a shape repeats only with `repeat_shape`, and a
// color only with `repeat_color`.
void choose_pair(const std::vector<Object>& others, Split split, bool repeat_shape, bool repeat_color, std::int64_t skew, Random& random,
                 Object& object) {
  while (true) {
    object.shape = draw_skewed(kShapes, skew, random);
    object.color = draw_skewed(kColors, skew, random);
    if (shapes_held_out_pair(object.shape, object.color) != (split == Split::held_out)) continue;
    const bool same_shape = taken(others, &Object::shape, object.shape);
    const bool same_color = taken(others, &Object::color, object.color);
    const bool same_pair = std::any_of(others.begin(), others.end(), [&](const Object& o) {
      return o.shape == object.shape && o.color == object.color;
    });
    if (same_pair || (same_shape && !repeat_shape) || (same_color && !repeat_color)) continue;
    return;
  }
}

void choose_sizes(std::vector<Object>& objects, const Diameters& diameters, Random& random) {
  const auto& chances = kSizeChances[objects.size() - 1];
  for (Object& o : objects) {
    const double u = random.uniform();
    o.size = u < chances[0] ? 0 : u < chances[0] + chances[1] ? 1 : 2;
    const auto& range = diameters[static_cast<std::size_t>(o.size)];
    o.radius = random.uniform(range[0], range[1]) / 2;
  }
  std::stable_sort(objects.begin(), objects.end(),
                   [](const Object& a, const Object& b) { return a.radius > b.radius; });
}

bool is_free(const std::vector<Object>& objects, std::size_t index) {
  const Object& o = objects[index];
  return std::all_of(objects.begin(), objects.begin() + static_cast<std::ptrdiff_t>(index), [&](const Object& other) {
    const double apart = o.radius * reach(o.shape) + other.radius * reach(other.shape) + kGap;
    const double dx = o.x - other.x, dy = o.y - other.y;
    return dx * dx + dy * dy >= apart * apart;
  });
}

// Places one object after the other in the image. Returns false if there is no free place for one of them.
bool place(std::vector<Object>& objects, Random& random) {
  constexpr int kAttempts = 12;
  for (std::size_t i = 0; i < objects.size(); ++i) {
    Object& o = objects[i];
    const double extent = o.radius * reach(o.shape);
    int attempt = 0;
    do {
      if (attempt++ == kAttempts) return false;
      o.x = random.uniform(extent, 1 - extent);
      o.y = random.uniform(extent, 1 - extent);
    } while (!is_free(objects, i));
  }
  return true;
}

}  // namespace

double reach(int shape) {
  static constexpr std::array<double, kShapes> reaches = {1.0, 1.14, 1.2, 1.2, 1.1, 1.2, 1.0, 1.1, 1.08, 1.05};
  return reaches[static_cast<std::size_t>(shape)];
}

double most_room(std::int64_t objects) {
  // room[n - 1] is the upper limit of the smallest diameter in scenes with n objects. Above this limit, fewer than one in fifty calls of
  // place() would succeed.
  static constexpr std::array<double, kMostObjects> room = {0.8, 0.44, 0.36, 0.3, 0.26, 0.22};
  return room.at(static_cast<std::size_t>(objects - 1));
}

Scene make_scene(const SceneKey& key, const std::array<std::int64_t, 2>& objects, const DiameterRange& diameters, std::int64_t skew) {
  Random random = key.random(scene_part);
  const Diameters sizes = stretched(diameters);
  Scene scene;
  scene.backdrop = static_cast<Backdrop>(key.random(background_part).below(4));  // draw_background() also uses this random number
  scene.tone = static_cast<Tone>(random.below(3));
  const std::int64_t count = objects[0] + random.below(objects[1] - objects[0] + 1);
  const bool repeat_shape = key.split != Split::held_out && random.chance(0.25);
  const bool repeat_color = random.chance(0.25);
  for (std::int64_t i = 0; i < count; ++i) {
    Object object;
    choose_pair(scene.objects, key.split, repeat_shape, repeat_color, skew, random, object);
    object.texture = random.chance(0.4) ? 0 : static_cast<int>(1 + random.below(kTextures - 1));
    object.tilt = random.uniform(-0.07, 0.07);  // at most 8 degrees, so that a square does not look like a diamond
    object.shade = random.uniform(0.93, 1.0);
    object.variant = static_cast<int>(random.below(4));
    scene.objects.push_back(object);
  }
  // Tries several layouts for each choice of sizes. Otherwise, crowded images would have almost only small objects. If hardly any choice
  // fits, gives every object the smallest diameter, for which most_room() promises a place.
  constexpr int kAttempts = 10000;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    if (attempt < kAttempts / 2 && attempt % 10 == 0) choose_sizes(scene.objects, sizes, random);
    for (Object& object : scene.objects) {
      if (attempt < kAttempts / 2) break;
      object.size = 0;
      object.radius = diameters[0] / 2;
    }
    if (place(scene.objects, random)) return scene;
  }
  TORCH_INTERNAL_ASSERT(false, "shapes: no room for ", count, " objects in sample ", key.index);
}

}  // namespace shapes
}  // namespace tessera
