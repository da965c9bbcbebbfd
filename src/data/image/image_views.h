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

/// Makes the image views of training samples: one decode, then a random crop for each view; views of the whole picture,
/// as evaluation makes it, from a decode of their own. Thread-safe; every random choice follows from (seed, repeat,
/// index, view).
class ImageViews {
 public:
  /// Throws UserError: a view that is not configured, or whose boxes are asked for where its augmentation moves objects.
  ImageViews(const Preprocessing& preprocessing, const ImageSettings& settings, const Needs& needs, std::uint64_t seed);

  /// uint8 [3, h, w] by the name of each view of pixels. Throws SampleError naming the key.
  std::map<std::string, std::vector<std::uint8_t>> make(const Sample& sample, std::int64_t index,
                                                        std::int64_t repeat) const;

  /// Boxes of the sample's picture (Box) as make() with these arguments shows them, by the name of each view whose boxes are
  /// asked for. Throws SampleError naming the key: no picture, a damaged one, a box that lies outside of it.
  std::map<std::string, std::vector<SeenBox>> see(const Sample& sample, const std::vector<Box>& boxes,
                                                  std::int64_t index, std::int64_t repeat) const;

  /// Of each view of pixels.
  std::map<std::string, config::Size> sizes() const;
  /// Throws UserError unless each view shows a picture as evaluation does, the same each time: features can stand for
  /// no other.
  void check_fixed() const;

 private:
  struct View {
    std::string name;
    Augmentation settings;
    config::Size size;
    std::uint64_t word = 0;  // of the keys of its random numbers
    bool boxes = false;      // are asked for
  };

  using Planes = std::map<std::string, std::vector<std::uint8_t>>;
  using Draws = std::function<Random(Purpose)>;

  void add_view(const std::string& name, bool boxes, const Preprocessing& preprocessing, const ImageSettings& settings);
  Planes make_views(const Sample& sample, std::int64_t index, std::int64_t repeat) const;
  config::Size size_of(const Sample& sample) const;
  Box crop_of(const View& view, const config::Size& picture, const Draws& draws) const;
  void make_crops(const Sample& sample, std::int64_t index, std::int64_t repeat, Planes& out) const;
  void make_whole(const Sample& sample, std::int64_t index, std::int64_t repeat, Planes& out) const;
  std::vector<std::uint8_t> make_crop(const View& view, const DecodedPart& part, const Box& box,
                                      const Draws& draws) const;
  Preprocessing preprocessing_for(const View& view) const;
  Draws draws_of(const View& view, std::int64_t index, std::int64_t repeat) const;

  Preprocessing preprocessing_;
  Filter filter_;
  bool scaling_;
  std::int64_t max_pixels_;
  std::uint64_t seed_;
  std::vector<View> crops_, whole_;  // random crops, and views of the whole picture
};

}  // namespace tessera
