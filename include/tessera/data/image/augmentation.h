#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include <tessera/config/fields.h>

namespace tessera {

/// torchvision's ColorJitter, which changes brightness, contrast, saturation and hue in random order. For brightness, contrast and
/// saturation, a setting v means multiplication by a random factor from [max(0, 1 - v), 1 + v]. For hue, it means a random shift by at most
/// v turns of the color wheel in either direction.
struct ColorJitter {
  double probability = 0.0;
  double brightness = 0.4;
  double contrast = 0.4;
  double saturation = 0.2;
  double hue = 0.1;
};

template <class Visitor>
void fields(Visitor& v, ColorJitter& s) {
  v("probability", s.probability, "probability of changing an image's colors at all; 0: never", config::in_range(0, 1));
  v("brightness", s.brightness, "v; the factor is drawn from [1 - v, 1 + v]", config::at_least(0));
  v("contrast", s.contrast, "v; the factor is drawn from [1 - v, 1 + v]", config::at_least(0));
  v("saturation", s.saturation, "v; the factor is drawn from [1 - v, 1 + v]", config::at_least(0));
  v("hue", s.hue, "v; the shift is drawn from [-v, v] turns of the color wheel", config::in_range(0, 0.5));
}

/// Pillow's Gaussian blur, as in DINO's recipe.
struct Blur {
  double probability = 0.0;
  std::array<double, 2> radius = {0.1, 2.0};
};

template <class Visitor>
void fields(Visitor& v, Blur& s) {
  v("probability", s.probability, "probability of blurring; 0: never", config::in_range(0, 1));
  v("radius", s.radius, "standard deviation in pixels of the crop, [low, high]", config::at_least(0));
}

std::optional<config::Problem> validate(const Blur& s);

/// Inversion of light pixels, as in DINO's recipe.
struct Solarize {
  double probability = 0.0;
  double threshold = 128.0;
};

template <class Visitor>
void fields(Visitor& v, Solarize& s) {
  v("probability", s.probability, "probability of solarizing; 0: never", config::in_range(0, 1));
  v("threshold", s.threshold, "a level x at or above this becomes 255 - x", config::in_range(0, 256));
}

/// torchvision's RandAugment: applies `operations` random operations to each image, all with the same magnitude. An operation may be drawn
/// more than once.
struct RandAugment {
  std::int64_t operations = 0;
  std::int64_t magnitude = 9;
};

inline constexpr std::int64_t kRandAugmentBins = 31;  // number of magnitude levels, from no effect to the strongest

template <class Visitor>
void fields(Visitor& v, RandAugment& s) {
  v("operations", s.operations, "RandAugment's n: operations per image (2 in the paper); 0: none", config::in_range(0, 100));
  v("magnitude", s.magnitude, "magnitude of every operation; 30 is the strongest", config::in_range(0, kRandAugmentBins - 1));
}

/// Random changes to training images. Every random choice depends only on (seed, epoch, sample). The changes are applied in this order:
/// crop, flip, AutoAugment, RandAugment, color jitter, grayscale, blur, solarization.
struct Augmentation {
  std::string crop = "random";
  std::array<double, 2> scale = {0.9, 1.0};
  std::array<double, 2> ratio = {3.0 / 4.0, 4.0 / 3.0};
  double flip = 0.0;  // probability
  std::string auto_augment = "none";
  RandAugment rand_augment;
  ColorJitter color_jitter;
  double grayscale = 0.0;  // probability
  Blur blur;
  Solarize solarize;
};

template <class Visitor>
void fields(Visitor& v, Augmentation& s) {
  v("crop", s.crop,
    "random: a random resized crop; evaluation: the whole image, decoded at full scale and prepared by model.preprocessing, so it is "
    "the same in every epoch (scale and ratio are then ignored)",
    config::one_of({"random", "evaluation"}));
  v("scale", s.scale, "share of the image's area that a random resized crop covers, [low, high]", config::in_range(0, 1));
  v("ratio", s.ratio, "width / height of the crop, [low, high]", config::above(0));
  v("flip", s.flip, "probability of a horizontal flip (use 0 if captions mention left and right)", config::in_range(0, 1));
  v("auto_augment", s.auto_augment, "imagenet: AutoAugment with the policy learned on ImageNet", config::one_of({"none", "imagenet"}));
  v("rand_augment", s.rand_augment, "RandAugment");
  v("color_jitter", s.color_jitter, "random brightness, contrast, saturation and hue");
  v("grayscale", s.grayscale, "probability of conversion to grayscale", config::in_range(0, 1));
  v("blur", s.blur, "Gaussian blur");
  v("solarize", s.solarize, "inversion of light pixels");
}

std::optional<config::Problem> validate(const Augmentation& s);

}  // namespace tessera
