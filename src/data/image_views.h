#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/data/resample.h"
#include <tessera/batch.h>
#include <tessera/data/loader.h>

namespace tessera {

/// Makes the image views of training samples: one decode, then a random crop for each view. Thread-safe; every random
/// choice follows from (seed, round, index, view).
class ImageViews {
 public:
  /// Throws UserError: a view that is not configured.
  ImageViews(const Preprocessing& preprocessing, const LoaderSettings& settings, const Needs& needs,
             std::uint64_t seed);

  /// uint8 [3, h, w] per view, in the order of Needs::image_views. Throws SampleError naming the key.
  std::vector<std::vector<std::uint8_t>> make(const Sample& sample, std::int64_t index, std::int64_t round) const;

  /// Of each view.
  std::vector<config::Size> sizes() const;

 private:
  struct View {
    std::string name;
    Augmentation settings;
    config::Size size;
  };

  std::vector<std::vector<std::uint8_t>> make_views(const Sample& sample, std::int64_t index, std::int64_t round) const;

  Filter filter_;
  bool scaling_;
  std::int64_t max_pixels_;
  std::uint64_t seed_;
  std::vector<View> views_;
};

}  // namespace tessera
