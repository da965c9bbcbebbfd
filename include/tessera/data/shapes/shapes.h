#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <tessera/config/fields.h>
#include <tessera/data/source.h>

namespace tessera {

/// The built-in procedural data set: pictures of a few colored shapes with captions, masks, boxes, phrases, summaries,
/// object tags, region features, labels and hard negatives. Everything about sample i follows from (seed, split, i); no
/// files.
struct ShapesSettings {
  std::string split = "train";
  std::int64_t size = 10000;
  std::int64_t image_size = 64;
  std::int64_t seed = 0;
  std::array<std::int64_t, 2> objects = {1, 4};
  std::int64_t captions = 5;
  double partial_captions = 0.0;
  bool parts = true;
  std::string label = "shape";
  bool negatives = true;
  bool regions = false;
};

template <class Visitor>
void fields(Visitor& v, ShapesSettings& s) {
  v("split", s.split,
    "disjoint streams of samples; held_out shows only the pairs of color and shape that the others never show",
    config::one_of({"train", "validation", "test", "held_out"}));
  v("size", s.size, "number of samples", config::in_range(1, 4294967295.0));
  v("image_size", s.image_size, "pixels, the side of the square picture; the scenes do not depend on it",
    config::in_range(16, 4096));
  v("seed", s.seed, "another seed is another data set", config::at_least(0));
  v("objects", s.objects, "objects in a picture, [fewest, most]", config::in_range(1, 4));
  v("captions", s.captions, "captions per picture, in different words", config::in_range(1, 100));
  v("partial_captions", s.partial_captions,
    "share of the captions after the first that leave out some of the objects; the others name all",
    config::in_range(0, 1));
  v("parts", s.parts,
    "make the text field `parts`: sentences of one object, or of two and how they stand to each other, for the view "
    "`captions`");
  v("label", s.label, "what labels and masks tell: the shape or the color; a picture's label is its largest object's",
    config::one_of({"shape", "color"}));
  v("negatives", s.negatives,
    "make hard negatives of the first caption (SugarCrepe's seven kinds) and of its phrases");
  v("regions", s.regions, "make region features (2,048 + 4 per object)");
}

std::optional<config::Problem> validate(const ShapesSettings& settings);

/// Names by index. Textures start with `plain`.
const std::vector<std::string>& shapes_shape_names();
const std::vector<std::string>& shapes_color_names();
const std::vector<std::string>& shapes_texture_names();
const std::vector<std::string>& shapes_size_names();

/// True for the pairs that only the split held_out shows: one color per shape.
bool shapes_held_out_pair(std::int64_t shape, std::int64_t color);

/// What the pictures hold:
/// - 1-4 objects that do not touch, largest first in `objects`; no two agree in both shape and color.
/// - `mask` and all labels index class_names(): the shapes (or, by the setting `label`, the colors), then `background`,
///   which is no picture's label. A pixel belongs to an object when at least half of it is covered; boxes are tight
///   around the mask.
/// - captions name every object's shape (see partial_captions), in at most 30 words out of about 60. `phrase` and `span`
///   point into the first caption, article included, as in Flickr30k Entities.
/// - the text field `parts` lists sentences that each tell a part of the picture: two of every object, one of every pair of
///   objects that stand in a clear relation, in random order.
/// - `summary` gives color and shape of each object, `object_tags` all of its attributes, both largest first.
/// - `regions`, [objects, 2052], largest first: 2,048 values of a fixed random projection of the crop (averaged to 8x8),
///   then left, top, right, bottom divided by the picture's side.
/// - an object's `negatives` are its phrase with one word wrong: each other color, texture, size and shape where it says one.
/// - `negatives`: at most one of each kind, each false of the picture. A kind is missing where it cannot be made (swaps
///   and relations want two objects).
/// get() is thread-safe.
class ShapesSource final : public IndexedSource {
 public:
  /// Throws UserError when `settings` do not pass validate().
  explicit ShapesSource(const ShapesSettings& settings);

  std::int64_t size() const override { return settings_.size; }
  Sample get(std::int64_t index) const override;
  std::vector<std::string> class_names() const override;
  std::int64_t background_class() const override;
  std::int64_t caption_count(std::int64_t) const override { return settings_.captions; }
  std::string describe() const override;

 private:
  ShapesSettings settings_;
};

}  // namespace tessera
