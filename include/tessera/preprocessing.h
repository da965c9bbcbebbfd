#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include <tessera/config/fields.h>

namespace tessera {

/// How a picture becomes the model's input at evaluation; a checkpoint carries it. pixels = (v / 255 - mean) / std.
struct Preprocessing {
  config::Size image_size = 224;
  std::string resize_mode = "shortest";
  std::int64_t max_patches = 256;
  std::optional<config::Size> patch_size;
  double crop_pct = 1.0;
  std::string crop_rounding = "half_even";
  std::string interpolation = "bicubic";
  std::int64_t fill_color = 0;
  std::array<double, 3> mean = {0.48145466, 0.4578275, 0.40821073};
  std::array<double, 3> std = {0.26862954, 0.26130258, 0.27577711};
};

template <class Visitor>
void fields(Visitor& v, Preprocessing& s) {
  v("image_size", s.image_size, "pixels: the side of a square, or [height, width]");
  v("resize_mode", s.resize_mode,
    "shortest: short side to size, center crop; longest: padded; squash: ratio not kept; naflex: whole, as at most max_patches patches "
    "of the image's own shape (SigLIP 2's NaFlex; image_size is then that of the model's learned positions)",
    config::one_of({"shortest", "longest", "squash", "naflex"}));
  v("max_patches", s.max_patches, "naflex: patches that an image has at most", config::at_least(1));
  v("patch_size", s.patch_size, "naflex: pixels of a patch; null: model.image.encoder.patch_size");
  v("crop_pct", s.crop_pct,
    "timm's: pictures are resized for image_size / crop_pct, rounded down, of which the center is kept; one that has image_size "
    "stays as it is",
    config::in_range(0.05, 1));
  v("crop_rounding", s.crop_rounding,
    "where a crop cannot lie in the middle: half_even (torchvision, OpenCLIP, timm) or down (transformers)",
    config::one_of({"half_even", "down"}));
  v("interpolation", s.interpolation, "antialiased resampling, equal to Pillow's", config::one_of({"bicubic", "bilinear"}));
  v("fill_color", s.fill_color, "grey level of the padding of resize_mode longest", config::in_range(0, 255));
  v("mean", s.mean, "per channel, in units of 0..1");
  v("std", s.std, "per channel, in units of 0..1", config::above(0));
}

/// Whether images keep their shapes, and a model sees them as sequences of patches (TowerInput::patches).
inline bool keeps_shapes(const Preprocessing& settings) {
  return settings.resize_mode == "naflex";
}

}  // namespace tessera
