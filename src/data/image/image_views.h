#pragma once

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

/// Makes the image views of training samples: one decode, then a random crop for each view. Thread-safe; every random
/// choice follows from (seed, repeat, index, view).
class ImageViews {
 public:
  /// Throws UserError: a view that is not configured.
  ImageViews(const Preprocessing& preprocessing, const ImageSettings& settings, const Needs& needs, std::uint64_t seed);

  /// uint8 [3, h, w] by the name of each view of pixels. Throws SampleError naming the key.
  std::map<std::string, std::vector<std::uint8_t>> make(const Sample& sample, std::int64_t index,
                                                        std::int64_t repeat) const;

  /// Of each view of pixels.
  std::map<std::string, config::Size> sizes() const;

 private:
  struct View {
    std::string name;
    Augmentation settings;
    config::Size size;
    std::uint64_t word = 0;  // of the keys of its random numbers
  };

  void add_view(const std::string& name, const Preprocessing& preprocessing, const ImageSettings& settings);
  std::map<std::string, std::vector<std::uint8_t>> make_views(const Sample& sample, std::int64_t index,
                                                              std::int64_t repeat) const;
  std::vector<std::uint8_t> make_view(const View& view, const DecodedPart& part, const Box& box,
                                      const std::function<Random(Purpose)>& draws) const;
  Random draws_of(const View& view, Purpose purpose, std::int64_t index, std::int64_t repeat) const;

  Filter filter_;
  bool scaling_;
  std::int64_t max_pixels_;
  std::uint64_t seed_;
  std::vector<View> views_;
};

}  // namespace tessera
