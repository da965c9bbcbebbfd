#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "src/data/image/decode.h"
#include <tessera/base/random.h>
#include <tessera/batch.h>
#include <tessera/data/image/image_settings.h>

namespace tessera {

/// Whether anything but crop and flip is asked for.
bool changes_pixels(const Augmentation& settings);

/// All that comes behind crop and flip. draws(purpose): the random numbers of this picture and view for a purpose.
void augment(Image& image, const Augmentation& settings, const std::function<Random(Purpose)>& draws);

/// A box of a picture as a view of it shows it.
struct SeenBox {
  std::array<float, 4> corners{};  // left, top, right, bottom as shares of the view's width and height, cut at its borders
  double visible = 0;              // share of its area that the view shows
};

/// An image as a view shows it: planes [3, height, width].
struct ViewImage {
  std::vector<std::uint8_t> planes;
  config::Size size;

  friend bool operator==(const ViewImage&, const ViewImage&) = default;
};

/// Makes the image views of training samples: one decode, then a random crop for each view; views of the whole picture,
/// as evaluation makes it, from a decode of their own. Thread-safe; every random choice follows from (seed, repeat,
/// index, view).
class ImageViews {
 public:
  /// Throws UserError: a view that is not configured, or whose boxes are asked for where its augmentation moves objects.
  ImageViews(const Preprocessing& preprocessing, const ImageSettings& settings, const Needs& needs, std::uint64_t seed);

  /// By the name of each view of pixels. max_patches: of views that keep their images' shapes and have no size of their own; 0: the
  /// preprocessing's. Throws SampleError naming the key.
  std::map<std::string, ViewImage> make(const Sample& sample, std::int64_t index, std::int64_t repeat,
                                        std::int64_t max_patches = 0) const;

  /// Boxes of the sample's picture (Box) as make() with these arguments shows them, by the name of each view whose boxes are
  /// asked for. Throws SampleError naming the key: no picture, a damaged one, a box that lies outside of it.
  std::map<std::string, std::vector<SeenBox>> see(const Sample& sample, const std::vector<Box>& boxes,
                                                  std::int64_t index, std::int64_t repeat) const;

  /// Of each view of pixels; where images keep their shapes, of one that has the most patches.
  std::map<std::string, config::Size> sizes() const;
  /// Throws UserError unless each view shows a picture as evaluation does, the same each time: features can stand for
  /// no other.
  void check_fixed() const;

 private:
  struct View {
    std::string name;
    Augmentation settings;
    config::Size size;
    bool own_size = false;   // not the preprocessing's
    std::uint64_t word = 0;  // of the keys of its random numbers
    bool boxes = false;      // are asked for
  };

  /// What a picture's random choices follow from, and how many patches it has at most (make()).
  struct Draw {
    std::int64_t index, repeat, max_patches;
  };
  using Images = std::map<std::string, ViewImage>;
  using Draws = std::function<Random(Purpose)>;

  void add_view(const std::string& name, bool boxes, const Preprocessing& preprocessing, const ImageSettings& settings);
  Images make_views(const Sample& sample, const Draw& draw) const;
  config::Size size_of(const Sample& sample) const;
  Box crop_of(const View& view, const config::Size& picture, const Draws& draws) const;
  void make_crops(const Sample& sample, const Draw& draw, Images& out) const;
  void make_whole(const Sample& sample, const Draw& draw, Images& out) const;
  ViewImage make_crop(const View& view, const DecodedPart& part, const Crop& crop, const Draws& draws) const;
  /// The preprocessing of a view's images.
  Preprocessing preprocessing_of(const View& view, const Draw& draw) const;
  Draws draws_of(const View& view, const Draw& draw) const;

  Preprocessing preprocessing_;
  Filter filter_;
  bool scaling_;
  std::int64_t max_pixels_;
  std::uint64_t seed_;
  std::vector<View> crops_, whole_;  // random crops, and views of the whole picture
};

}  // namespace tessera
