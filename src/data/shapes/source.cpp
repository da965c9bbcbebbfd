#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <utility>

#include <c10/util/Exception.h>

#include "src/data/shapes/shapes.h"
#include <src/data/shapes/captions.h>
#include <src/data/shapes/draw.h>
#include <src/data/shapes/negatives.h>
#include <src/data/shapes/scene.h>
#include <tessera/base/random.h>

namespace tessera {
namespace {

using namespace shapes;

Split split_of(const std::string& name) {
  static const std::vector<std::string> names = {"train", "validation", "test", "held_out"};
  return static_cast<Split>(std::ranges::find(names, name) - names.begin());
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

std::vector<std::uint8_t> class_mask(const Drawing& drawing, const Scene& scene, bool by_color,
                                     std::int64_t background) {
  std::vector<std::uint8_t> mask(drawing.owner.size());
  std::transform(drawing.owner.begin(), drawing.owner.end(), mask.begin(), [&](std::uint8_t owner) {
    return static_cast<std::uint8_t>(owner == Drawing::kNobody ? background
                                                               : class_of(scene.objects[owner], by_color));
  });
  return mask;
}

// How a caption fits its image. `whole` captions are true: they are the same as without the setting bad_captions. `less` captions leave
// out objects, `more` captions also name objects that are not there, and `other` captions belong to another image.
enum class Fit { whole, less, more, other };

// One caption of an image before it becomes text.
struct Telling {
  Fit fit = Fit::whole;
  CaptionPlan plan;
  // the scene that `plan` describes: for `whole` and `less`, the image's scene; for `more`, the image's scene followed by objects that are
  // not in the image; for `other`, the scene of another image
  Scene scene;
};

constexpr std::int64_t kFirstUnusedIndex = std::int64_t{1} << 32;  // every data set has fewer samples than this

Fit draw_fit(const BadCaptionShares& shares, Random& random) {
  const double number = random.uniform();
  if (number < shares.less) return Fit::less;
  if (number < shares.less + shares.more) return Fit::more;
  return number < shares.sum() ? Fit::other : Fit::whole;
}

// Returns an object with a shape that no object of the scene has.
Object absent_object(const Scene& scene, Split split, Random& random) {
  Object out;
  const auto one_of = [&](const std::vector<std::string>& names) { return static_cast<int>(random.below(std::ssize(names))); };
  const auto is_there = [&](const Object& o) { return o.shape == out.shape; };
  do {
    out.shape = one_of(shapes_shape_names());
    out.color = one_of(shapes_color_names());
  } while (std::any_of(scene.objects.begin(), scene.objects.end(), is_there) ||
           shapes_held_out_pair(out.shape, out.color) != (split == Split::held_out));
  out.texture = one_of(shapes_texture_names());
  out.size = one_of(shapes_size_names());
  return out;
}

// Makes another random scene and a caption of it. The caption is false for `scene`.
void tell_of_another(const SceneKey& key, const Scene& scene, const ShapesSettings& settings, Style style, Random& random,
                     Telling& out) {
  constexpr int kAttempts = 1000;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const SceneKey other{key.seed, key.split, kFirstUnusedIndex + random.next()};
    out.scene = make_scene(other, settings.objects, settings.object_sizes, settings.skew);
    out.plan = plan_caption(out.scene, out.scene.objects.size(), style, random);
    if (!could_be_true(out.plan, scene)) return;
  }
  TORCH_INTERNAL_ASSERT(false, "shapes: every caption is true of sample ", key.index);
}

// Returns caption number `caption` of the image. The setting bad_captions spoils some captions. All other captions (Fit::whole) are the
// same as without this setting.
Telling tell(const SceneKey& key, const Scene& scene, const ShapesSettings& settings, std::int64_t caption) {
  const Style style = settings.style == "web" ? Style::web : Style::plain;
  const auto number = static_cast<std::uint64_t>(caption);
  Random words = key.random(caption_part + number);
  Random misfit = key.random(misfit_part + number);
  const auto count = static_cast<std::int64_t>(scene.objects.size());
  // `partial` and `few` are drawn for every caption, even if they are not used, so that the later draws are always the same. The first
  // caption is never partial, because the annotations belong to it.
  const bool partial = words.chance(settings.partial_captions) && caption > 0;
  const std::int64_t few = 1 + words.below(count);

  Telling out{draw_fit(settings.bad_captions, misfit), {}, scene};
  if (out.fit == Fit::other) {
    tell_of_another(key, scene, settings, style, misfit, out);
    return out;
  }
  const std::int64_t named = out.fit == Fit::less ? (count == 1 ? 0 : 1 + misfit.below(count - 1)) : partial ? few : count;
  out.plan = plan_caption(scene, static_cast<std::size_t>(named), style, words);
  if (out.fit == Fit::more) {
    std::vector<std::size_t> added;
    const std::int64_t more = 1 + misfit.below(2);
    for (std::int64_t i = 0; i < more; ++i) {
      added.push_back(out.scene.objects.size());
      out.scene.objects.push_back(absent_object(out.scene, key.split, misfit));
    }
    add_mentions(out.plan, out.scene, added, style, misfit);
  }
  return out;
}

constexpr std::int64_t kRegionWidth = 2048 + 4;
constexpr std::int64_t kGrid = 8;
constexpr std::size_t kPixels = kGrid * kGrid * 3;
constexpr std::size_t kProjected = 2048;

// Returns the projection matrix [kPixels, kProjected], which is the same for every data set.
const std::vector<float>& projection() {
  static const std::vector<float> matrix = [] {
    Random random(0, Purpose::projection, {static_cast<std::uint64_t>(kProjected)});
    const double bound = std::sqrt(3.0 / static_cast<double>(kPixels));  // uniform numbers in [-bound, bound) have variance bound^2 / 3
    std::vector<float> values(kPixels * kProjected);
    for (float& value : values) value = static_cast<float>(random.uniform(-bound, bound));
    return values;
  }();
  return matrix;
}

// Shrinks the part of the image in `box` to a grid. A cell's value, in -1..1, is the mean of all pixels that the cell touches.
std::array<float, kPixels> thumbnail(const Image& image, const std::array<std::int64_t, 4>& box) {
  std::array<float, kPixels> out{};
  const auto [top, left, height, width] = box;
  for (std::int64_t i = 0; i < kGrid; ++i) {
    const std::int64_t first_row = top + i * height / kGrid;
    const std::int64_t end_row = std::max(first_row + 1, top + ((i + 1) * height + kGrid - 1) / kGrid);
    for (std::int64_t j = 0; j < kGrid; ++j) {
      const std::int64_t first_column = left + j * width / kGrid;
      const std::int64_t end_column = std::max(first_column + 1, left + ((j + 1) * width + kGrid - 1) / kGrid);
      std::array<std::int64_t, 3> sums{};
      for (std::int64_t row = first_row; row < end_row; ++row)
        for (std::int64_t column = first_column; column < end_column; ++column)
          for (std::size_t c = 0; c < 3; ++c)
            sums[c] += image.pixels[static_cast<std::size_t>(row * image.width + column) * 3 + c];
      const auto count = static_cast<double>((end_row - first_row) * (end_column - first_column));
      for (std::size_t c = 0; c < 3; ++c)
        out[static_cast<std::size_t>(i * kGrid + j) * 3 + c] =
            static_cast<float>(static_cast<double>(sums[c]) / count / 127.5 - 1);
    }
  }
  return out;
}

// Appends kRegionWidth values for the crop (top, left, height, width). To get the first 2,048, averages the crop to 8 x 8 x 3 and applies
// a fixed random projection. The entries of the projection's matrix are uniform random numbers, scaled so that the variance of each of the
// 2,048 values is the mean square of the averaged pixels. The last four values are left, top, right and bottom in 0..1.
void append_region(const Image& image, const std::array<std::int64_t, 4>& box, std::vector<float>& out) {
  const std::array<float, kPixels> pixels = thumbnail(image, box);
  const std::size_t start = out.size();
  out.resize(start + kProjected, 0.0F);
  const float* row = projection().data();
  for (std::size_t p = 0; p < kPixels; ++p, row += kProjected)
    for (std::size_t k = 0; k < kProjected; ++k) out[start + k] += pixels[p] * row[k];
  const auto [top, left, height, width] = box;
  const auto share = [](std::int64_t value, std::int64_t side) {
    return static_cast<float>(value) / static_cast<float>(side);
  };
  out.push_back(share(left, image.width));
  out.push_back(share(top, image.height));
  out.push_back(share(left + width, image.width));
  out.push_back(share(top + height, image.height));
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

ShapesSource::ShapesSource(const ShapesSettings& settings) : settings_(config::read<ShapesSettings>(config::dump(settings), "shapes")) {}

Sample ShapesSource::get(std::int64_t index) const {
  TORCH_CHECK(index >= 0 && index < settings_.size, "shapes: sample ", index, " of ", settings_.size);
  const SceneKey key{static_cast<std::uint64_t>(settings_.seed), split_of(settings_.split), index};
  const Scene scene = make_scene(key, settings_.objects, settings_.object_sizes, settings_.skew);
  Drawing drawing = draw(scene, key, size_of(key, settings_));
  const bool by_color = settings_.label == "color";
  const std::size_t count = scene.objects.size();

  Sample sample;
  std::array<char, 32> number{};
  std::snprintf(number.data(), number.size(), "%08lld", static_cast<long long>(index));
  sample.key = settings_.split + "_" + number.data();
  sample.label = class_of(scene.objects[0], by_color);
  sample.mask = class_mask(drawing, scene, by_color, background_class());
  sample.object_tags = write_tags(scene);
  for (std::size_t i = 0; i < count; ++i) {
    ObjectAnnotation object;
    object.label = class_of(scene.objects[i], by_color);
    object.box = drawing.boxes[i];
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
    for (const auto& box : drawing.boxes) append_region(drawing.image, box, sample.regions);
  }
  sample.image = std::move(drawing.image);
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
