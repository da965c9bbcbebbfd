#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include <tessera/config/fields.h>
#include <tessera/data/image/augmentation.h>
#include <tessera/sample.h>

namespace tessera {

/// An image view in addition to `image`: another crop of the same image.
struct ViewSettings : Augmentation {
  std::int64_t count = 0;
  std::optional<config::Size> image_size;
};

template <class Visitor>
void fields(Visitor& v, ViewSettings& s) {
  v("count", s.count, "0: one view named NAME; n: views NAME_0 to NAME_(n-1)", config::in_range(0, config::kMostCount));
  v("image_size", s.image_size, "pixels, side or [height, width]; null: the model's image size");
  fields(v, static_cast<Augmentation&>(s));
}

/// How training images are decoded, and which views are made from them.
struct ImageSettings {
  std::string dct_scaling = "auto";
  std::int64_t max_pixels = kDefaultMaxPixels;
  Augmentation augmentation;
  std::map<std::string, ViewSettings> views;
};

template <class Visitor>
void fields(Visitor& v, ImageSettings& s) {
  v("dct_scaling", s.dct_scaling,
    "auto: a JPEG is decoded at the smallest of 1/8, 1/4, 1/2 and full scale at which no crop is smaller than its view; off: at "
    "full scale, so that training crops match Pillow's bit for bit (evaluation always decodes at full scale)",
    config::one_of({"auto", "off"}));
  v("max_pixels", s.max_pixels,
    "images with more pixels than this are skipped without decoding (decompression bombs)", config::at_least(1));
  v("augmentation", s.augmentation, "random changes to training images");
  v("views", s.views,
    "image views in addition to `image`, for objectives that need them, written as NAME: {count, image_size, and "
    "augmentation's keys}");
}

std::optional<config::Problem> validate(const ImageSettings& s);

}  // namespace tessera
