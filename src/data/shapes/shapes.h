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

/// The shares of captions that do not fit their image, as in data from the web.
struct BadCaptionShares {
  double less = 0.0;
  double more = 0.0;
  double other = 0.0;

  double sum() const { return less + more + other; }
};

template <class Visitor>
void fields(Visitor& v, BadCaptionShares& s) {
  v("less", s.less,
    "share of all captions that leave out at least one object; where the image has only one, they are about the background",
    config::in_range(0, 1));
  v("more", s.more, "share of all captions that also name one or two objects that are not there", config::in_range(0, 1));
  v("other", s.other, "share of all captions that are another image's and false of this one", config::in_range(0, 1));
}

std::optional<config::Problem> validate(const BadCaptionShares& shares);

/// Settings of the built-in data set, which generates images of a few colored shapes with captions, masks, boxes, phrases, summaries,
/// object tags, region features, labels and hard negatives. It needs no files: sample i is computed from (seed, split, i).
struct ShapesSettings {
  std::string split = "train";
  std::int64_t size = 10000;
  std::int64_t image_size = 64;
  double aspect = 1.0;
  std::int64_t seed = 0;
  std::array<std::int64_t, 2> objects = {1, 4};
  std::array<double, 2> object_sizes = {0.26, 0.58};
  std::int64_t skew = 0;
  std::int64_t captions = 5;
  std::string style = "plain";
  double partial_captions = 0.0;
  BadCaptionShares bad_captions;
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
  v("image_size", s.image_size, "pixels, the picture's shorter side; the scenes do not depend on it", config::in_range(16, 4096));
  v("aspect", s.aspect,
    "a picture is up to so many times as wide as high, or as high as wide, drawn for each; objects keep their shapes and lie further "
    "apart; 1: all are square",
    config::in_range(1, 4));
  v("seed", s.seed, "another seed is another data set", config::at_least(0));
  v("objects", s.objects, "objects in an image, [fewest, most]; more than 4 need smaller object_sizes", config::in_range(1, 6));
  v("object_sizes", s.object_sizes,
    "diameters of the smallest and the largest objects, as shares of the image's shorter side; small, medium and large share the "
    "range between them; the smallest need at least 3 pixels",
    config::in_range(0.05, 0.8));
  v("skew", s.skew,
    "gives shapes and colors a long tail: the n-th of each is n^-skew times as frequent as the first (circle, red); 0: all are equally frequent",
    config::in_range(0, 4));
  v("captions", s.captions, "captions per picture, in different words", config::in_range(1, 100));
  v("style", s.style,
    "words of captions and summaries: plain, about 60, each thing always called the same; web, about 2,600, with synonyms, "
    "materials, places, times, people, and words that say nothing of the image",
    config::one_of({"plain", "web"}));
  v("partial_captions", s.partial_captions,
    "share of the captions after the first that leave out some of the objects; the others name all",
    config::in_range(0, 1));
  v("bad_captions", s.bad_captions,
    "shares of captions that do not fit their image, the first ones included; the other captions stay as they are");
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

/// Each of these functions returns all names of one attribute, in the order of their indices. The first texture is `plain`.
const std::vector<std::string>& shapes_shape_names();
const std::vector<std::string>& shapes_color_names();
const std::vector<std::string>& shapes_texture_names();
const std::vector<std::string>& shapes_size_names();

/// Returns whether this combination of shape and color occurs only in the split held_out. Each shape has one such color.
bool shapes_held_out_pair(std::int64_t shape, std::int64_t color);

/// Generates the samples that ShapesSettings describes:
/// - An image has 1-6 objects that do not touch. `objects` lists them, largest first. No two agree in both shape and color.
/// - `mask` and all labels are indices into class_names(): the shapes (or the colors, if the setting `label` is `color`), followed by
///   `background`, which is never an image's label. A pixel belongs to an object if the object covers at least half of it. Boxes are tight
///   around the mask.
/// - Captions name every object's shape (for exceptions see partial_captions), in at most 30 words from a vocabulary of about 60. In the
///   style `web` they have at most 40 words from a vocabulary of about 2,600, and phrases have 2 to 7 words (2 to 4 if the caption names
///   four objects or more). `phrase` and `span` refer to the first caption and include the article, as in Flickr30k Entities.
/// - If the first caption does not fit its image (see bad_captions), objects that it does not name have no phrase; if it is a caption of
///   another image, no object has a phrase. Hard negatives are made only from true captions. Labels, masks, boxes, `object_tags` and
///   `parts` always describe the image itself.
/// - The text field `parts` lists sentences that each describe a part of the image, in random order: two for every object, and one for
///   every pair of objects with a clear relation.
/// - `summary` lists the color and shape of each object that the first caption names, largest first, in the caption's words. `object_tags`
///   lists all attributes of the image's objects, largest first, in plain words, as a detector would.
/// - `regions` [objects, 2052] has a row for each object, largest first: 2,048 values of a fixed random projection of the object's crop
///   (averaged to 8x8), then left, top, right and bottom, divided by the image's width or height.
/// - An object's `negatives` are all phrases that differ from its phrase in one named attribute: shape, color, texture or size.
/// - The sample's `negatives` contain at most one caption of each kind; each is false for the image. A kind is missing if it cannot be made
///   (for example, swaps need two objects).
/// get() is thread-safe.
class ShapesSource final : public IndexedSource {
 public:
  /// Throws UserError if `settings` do not pass validate().
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
