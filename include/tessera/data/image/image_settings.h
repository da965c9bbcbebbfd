#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include <tessera/config/fields.h>
#include <tessera/data/image/augmentation.h>
#include <tessera/data/sample.h>

namespace tessera {

/// An image view beside `image`: a crop of its own of the same picture.
struct ViewSettings : Augmentation {
  std::int64_t count = 0;
  std::optional<config::Size> image_size;
};

template <class Visitor>
void fields(Visitor& v, ViewSettings& s) {
  v("count", s.count, "0: one view of this name; n: views NAME_0 to NAME_(n-1)", config::in_range(0, 1000));
  v("image_size", s.image_size, "pixels, side or [height, width]; null: the model's image size");
  fields(v, static_cast<Augmentation&>(s));
}

/// How training pictures are decoded, and which image views are made of them.
struct ImageSettings {
  std::string dct_scaling = "auto";
  std::int64_t max_pixels = kDefaultMaxPixels;
  Augmentation augmentation;
  std::map<std::string, ViewSettings> views;
};

template <class Visitor>
void fields(Visitor& v, ImageSettings& s) {
  v("dct_scaling", s.dct_scaling,
    "auto: a JPEG picture is decoded at the least of 1/8, 1/4, 1/2 and full scale at which no crop is smaller than its size; off: at "
    "full scale, and training crops are Pillow's bit for bit (evaluation always is)",
    config::one_of({"auto", "off"}));
  v("max_pixels", s.max_pixels, "pictures with more pixels than this are skipped undecoded (decompression bombs)", config::at_least(1));
  v("augmentation", s.augmentation, "random changes of training pictures");
  v("views", s.views,
    "image views beside `image`, for objectives that ask for them: NAME: {count, image_size, and the keys of augmentation}");
}

std::optional<config::Problem> validate(const ImageSettings& s);

}  // namespace tessera
