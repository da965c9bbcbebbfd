#include <algorithm>
#include <array>
#include <cstdio>
#include <utility>

#include <c10/util/Exception.h>

#include "src/data/shapes/shapes.h"
#include <src/data/shapes/captions.h>
#include <src/data/shapes/draw.h>
#include <src/data/shapes/negatives.h>
#include <src/data/shapes/regions.h>
#include <src/data/shapes/scene.h>
#include <src/data/shapes/telling.h>

namespace tessera {
namespace {

using namespace shapes;

Split split_of(const std::string& name) {
  if (name == "train") return Split::train;
  if (name == "validation") return Split::validation;
  if (name == "test") return Split::test;
  if (name == "held_out") return Split::held_out;
  user_error("shapes: unknown split ", name, suggestion(name, {"train", "validation", "test", "held_out"}));
}

// Returns the size of the image. Its shorter side is settings.image_size, and its longer side is at most settings.aspect times as long.
config::Size size_of(const SceneKey& key, const ShapesSettings& settings) {
  if (settings.aspect == 1) return settings.image_size;
  Random random = key.random(shape_part);
  const double longer = static_cast<double>(settings.image_size) * random.uniform(1, settings.aspect);
  const auto side = static_cast<std::int64_t>(longer + 0.5);
  return random.chance(0.5) ? config::Size(settings.image_size, side) : config::Size(side, settings.image_size);
}

int class_of(const Object& object, bool by_color) {
  return by_color ? object.color : object.shape;
}

std::vector<std::uint8_t> class_mask(const Picture& picture, const Scene& scene, bool by_color,
                                     std::int64_t background) {
  std::vector<std::uint8_t> mask(picture.owner.size());
  std::transform(picture.owner.begin(), picture.owner.end(), mask.begin(), [&](std::uint8_t owner) {
    return static_cast<std::uint8_t>(owner == Picture::kNobody ? background
                                                               : class_of(scene.objects[owner], by_color));
  });
  return mask;
}

// Adds to the sample the phrases and hard negatives of its first caption. Adds nothing if that caption belongs to another image.
void annotate(const Telling& telling, const CaptionText& caption, const Scene& scene, const SceneKey& key, bool negatives,
              Sample& sample) {
  if (telling.fit == Fit::other) return;
  const CaptionPlan& plan = telling.plan;
  for (std::size_t m = 0; m < plan.mentions.size(); ++m) {
    const auto number = static_cast<std::size_t>(plan.mentions[m].object);
    if (number >= scene.objects.size()) continue;  // the caption names an object that is not in the image
    ObjectAnnotation& object = sample.objects[number];
    object.span = caption.spans[m];
    object.phrase = caption.text.substr(static_cast<std::size_t>(object.span[0]),
                                        static_cast<std::size_t>(object.span[1] - object.span[0]));
    if (negatives) object.negatives = make_phrase_negatives(plan.mentions[m]);
  }
  if (!negatives || telling.fit == Fit::more) return;
  Random random = key.random(negative_part);
  sample.negatives = make_negatives(plan, scene, random);
}

}  // namespace

std::optional<config::Problem> validate(const BadCaptionShares& shares) {
  constexpr double kRounding = 1e-9;  // allows for the rounding of sums such as 0.1 + 0.2 + 0.7
  if (shares.sum() <= 1 + kRounding) return std::nullopt;
  return config::Problem{
      "", concat("less, more and other are ", shares.sum(), " of the captions together: they may be at most 1")};
}

std::optional<config::Problem> validate(const ShapesSettings& settings) {
  const auto& [fewest, most] = settings.objects;
  if (fewest > most) return config::Problem{"objects", concat("expected [fewest, most], got [", fewest, ", ", most, "]")};
  const auto& [smallest, largest] = settings.object_sizes;
  if (smallest > largest)
    return config::Problem{"object_sizes", concat("expected [smallest, largest], got [", smallest, ", ", largest, "]")};
  if (smallest > most_room(most))
    return config::Problem{"object_sizes", concat("objects of ", smallest, " of the image's side are too large for ", most,
                                                  " in an image: the smallest may be at most ", most_room(most))};
  constexpr double kFewestPixels = 3;  // below 2.8, a cross may cover no pixel at all
  const double pixels = smallest * static_cast<double>(settings.image_size);
  if (pixels < kFewestPixels)
    return config::Problem{"object_sizes", concat("the smallest objects would be ", pixels, " pixels wide, expected at least ",
                                                  kFewestPixels, ": raise object_sizes or image_size")};
  return std::nullopt;
}

ShapesSource::ShapesSource(const ShapesSettings& settings)
    : settings_(config::read<ShapesSettings>(config::dump(settings), "shapes")) {
  split_of(settings_.split);
}

Sample ShapesSource::get(std::int64_t index) const {
  TORCH_CHECK(index >= 0 && index < settings_.size, "shapes: sample ", index, " of ", settings_.size);
  const SceneKey key{static_cast<std::uint64_t>(settings_.seed), split_of(settings_.split), index};
  const Scene scene = make_scene(key, settings_.objects, settings_.object_sizes);
  Picture picture = draw(scene, key, size_of(key, settings_));
  const bool by_color = settings_.label == "color";
  const std::size_t count = scene.objects.size();

  Sample sample;
  std::array<char, 32> number{};
  std::snprintf(number.data(), number.size(), "%08lld", static_cast<long long>(index));
  sample.key = settings_.split + "_" + number.data();
  sample.label = class_of(scene.objects[0], by_color);
  sample.mask = class_mask(picture, scene, by_color, background_class());
  sample.object_tags = write_tags(scene);
  for (std::size_t i = 0; i < count; ++i) {
    ObjectAnnotation object;
    object.label = class_of(scene.objects[i], by_color);
    object.box = picture.boxes[i];
    sample.objects.push_back(object);
  }

  for (std::int64_t i = 0; i < settings_.captions; ++i) {
    const Telling telling = tell(key, scene, settings_, i);
    CaptionText caption = write(telling.plan, telling.scene.tone);
    if (i == 0) {
      sample.summary = write_summary(telling.plan, telling.scene);
      annotate(telling, caption, scene, key, settings_.negatives, sample);
    }
    sample.captions.push_back(std::move(caption.text));
  }

  if (settings_.parts) {
    Random random = key.random(parts_part);
    sample.texts.push_back({{write_parts(scene, random), /*is_list=*/true}, "parts"});
  }
  if (settings_.regions) {
    sample.region_width = kRegionWidth;
    for (const auto& box : picture.boxes) append_region(picture.image, box, sample.regions);
  }
  sample.image = std::move(picture.image);
  return sample;
}

std::vector<std::string> ShapesSource::class_names() const {
  std::vector<std::string> names = settings_.label == "color" ? shapes_color_names() : shapes_shape_names();
  names.emplace_back("background");
  return names;
}

std::int64_t ShapesSource::background_class() const {
  return static_cast<std::int64_t>(class_names().size()) - 1;
}

std::string ShapesSource::describe() const {
  return concat("shapes ", settings_.split, ", ", with_thousands(settings_.size), " samples");
}

}  // namespace tessera
