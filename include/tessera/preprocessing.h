#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include <tessera/config/fields.h>

namespace tessera {

/// How the pixels of an image file become 8-bit RGB.
struct Decoding {
  bool exif_rotation = false;
  std::int64_t gray_range = 65535;
};

template <class Visitor>
void fields(Visitor& v, Decoding& s) {
  v("exif_rotation", s.exif_rotation,
    "turn images as their EXIF orientation says (photos of phones), with their masks and boxes; false: leave them as they are stored, as "
    "OpenCLIP does");
  v("gray_range", s.gray_range,
    "value of white in gray images of 16 bits: a value v becomes the level v * 256 / (gray_range + 1), rounded down, at most 255. 65535: the "
    "upper 8 bits; 4095: for scans of 12 bits; 255: Pillow's convert(\"RGB\"), which clips",
    config::in_range(255, 65535));
}

/// Returns the 8-bit level of a value of a 16-bit gray image.
inline std::uint8_t gray_level(std::int64_t value, std::int64_t gray_range) {
  return static_cast<std::uint8_t>(std::min<std::int64_t>(value * 256 / (gray_range + 1), 255));
}

/// How an image becomes the model's input in evaluation; stored in checkpoints. Pixel values v become (v / 255 - mean) / std.
struct Preprocessing : Decoding {
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
    "shortest: resizes the shorter side to image_size and crops the center; longest: resizes the longer side and pads; squash: "
    "ignores the aspect ratio; naflex: keeps the whole image and its aspect ratio, in at most max_patches patches (SigLIP 2's "
    "NaFlex; image_size is then the size of the model's learned positions)",
    config::one_of({"shortest", "longest", "squash", "naflex"}));
  v("max_patches", s.max_patches, "naflex: largest number of patches per image", config::at_least(1));
  v("patch_size", s.patch_size, "naflex: patch size in pixels; null: model.image.encoder.patch_size");
  v("crop_pct", s.crop_pct,
    "as in timm: images are resized for a size of image_size / crop_pct (rounded down), and the center of image_size is kept; an "
    "image that already has image_size is not resized",
    config::in_range(0.05, 1));
  v("crop_rounding", s.crop_rounding,
    "how the center crop's offset is rounded if it is not whole: half_even (torchvision, OpenCLIP, timm) or down (transformers)",
    config::one_of({"half_even", "down"}));
  v("interpolation", s.interpolation, "antialiased resampling, equal to Pillow's", config::one_of({"bicubic", "bilinear"}));
  v("fill_color", s.fill_color, "gray level of the padding with resize_mode longest", config::in_range(0, 255));
  v("mean", s.mean, "mean of each channel, for pixel values from 0 to 1");
  v("std", s.std, "standard deviation of each channel, for pixel values from 0 to 1", config::above(0));
  fields(v, static_cast<Decoding&>(s));
}

/// Whether images keep their own shapes and enter the model as sequences of patches (TowerInput::patches).
inline bool keeps_shapes(const Preprocessing& settings) {
  return settings.resize_mode == "naflex";
}

}  // namespace tessera
