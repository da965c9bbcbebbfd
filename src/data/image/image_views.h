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

/// Returns whether the settings include changes other than crop and flip.
bool changes_pixels(const Augmentation& settings);

/// Applies all augmentations that follow crop and flip. `draws` returns the random numbers of this image and view for a
/// purpose.
void augment(Image& image, const Augmentation& settings, const std::function<Random(Purpose)>& draws);

/// The part of an image's box that is visible in a view.
struct SeenBox {
  std::array<float, 4> corners{};  // left, top, right, bottom as shares of the view's width and height, clipped at its borders
  double visible = 0;              // share of the box's area that the view shows
};

/// The pixels of an image view, as planes [3, height, width].
struct ViewImage {
  std::vector<std::uint8_t> planes;
  config::Size size;

  friend bool operator==(const ViewImage&, const ViewImage&) = default;
};

/// Makes the image views of training samples. All random crops of a sample share one decode. The views of the whole image, prepared as in
/// evaluation, share another decode. Thread-safe; every random choice is a function of (seed, repeat, index, view).
class ImageViews {
 public:
  /// Throws UserError if a view is not configured, or if its boxes are needed but its augmentation moves objects.
  ImageViews(const Preprocessing& preprocessing, const ImageSettings& settings, const Needs& needs, std::uint64_t seed);

  /// Returns the pixel views by name. With resize_mode naflex, `max_patches` applies to the views without an image_size of their
  /// own. If `max_patches` is 0, the preprocessing's max_patches applies to them. Throws SampleError naming the key.
  std::map<std::string, ViewImage> make(const Sample& sample, std::int64_t index, std::int64_t repeat,
                                        std::int64_t max_patches = 0) const;

  /// Computes the positions of the given boxes of the sample's image in each view that needs boxes. The views are those that make()
  /// returns for the same `index` and `repeat`. If the image is turned (exif_rotation), the boxes are turned with it. Throws SampleError
  /// naming the key if the image is missing or damaged, or if a box is outside the image.
  std::map<std::string, std::vector<SeenBox>> see(const Sample& sample, const std::vector<Box>& boxes,
                                                  std::int64_t index, std::int64_t repeat) const;

  /// Returns the size of each pixel view. With resize_mode naflex, a view without an image_size of its own has the size of an image
  /// with the maximum number of patches.
  std::map<std::string, config::Size> sizes() const;
  /// Throws UserError if a view does not show images exactly as evaluation does. Stored features cannot replace such a view.
  void check_fixed() const;

 private:
  struct View {
    std::string name;
    Augmentation settings;
    config::Size size;
    bool own_size = false;   // has an image_size of its own
    std::uint64_t word = 0;  // fingerprint of the name, so that each view draws its own random numbers; 0 for the view `image`
    bool boxes = false;      // whether boxes in this view are needed
  };

  /// Arguments of make(). An image's random choices depend on `index` and `repeat`. The image's size depends on `max_patches`.
  struct Draw {
    std::int64_t index, repeat, max_patches;
  };
  using Images = std::map<std::string, ViewImage>;
  using Draws = std::function<Random(Purpose)>;

  void add_view(const std::string& name, bool boxes, const Preprocessing& preprocessing, const ImageSettings& settings);
  ImageHeader header_of(const Sample& sample) const;
  Box crop_of(const View& view, const config::Size& image, const Draws& draws) const;
  void make_crops(const Sample& sample, const Draw& draw, Images& out) const;
  void make_whole(const Sample& sample, const Draw& draw, Images& out) const;
  ViewImage make_crop(const View& view, const DecodedPart& part, const Crop& crop, const Draws& draws) const;
  /// Returns the preprocessing of a view's images.
  Preprocessing preprocessing_of(const View& view, const Draw& draw) const;
  Draws draws_of(const View& view, const Draw& draw) const;

  Preprocessing preprocessing_;
  Filter filter_;
  bool scaling_;
  std::int64_t max_pixels_;
  std::uint64_t seed_;
  std::vector<View> crops_, whole_;  // views with random crops, and views of the whole image
};

/// Returns the height and width that the loader gives to each pixel view in `needs`. Throws UserError if a view is not configured.
std::map<std::string, config::Size> image_view_sizes(const Preprocessing& preprocessing, const ImageSettings& settings, const Needs& needs);

/// Returns a function that makes a sample's training image (decoding, random crop, augmentation) and discards it, so that benchmarks can
/// time the loader's work per image. It throws SampleError naming the key.
std::function<void(const Sample& sample, std::int64_t index)> training_image_work(const Preprocessing& preprocessing,
                                                                                   const ImageSettings& settings);

}  // namespace tessera
