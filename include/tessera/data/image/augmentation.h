#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include <tessera/config/fields.h>

namespace tessera {

/// torchvision's ColorJitter: brightness, contrast, saturation and hue in random order. The first three are factors drawn from
/// [max(0, 1 - v), 1 + v], the last is a shift drawn from [-v, v] turns of the color wheel.
struct ColorJitter {
  double probability = 0.0;
  double brightness = 0.4;
  double contrast = 0.4;
  double saturation = 0.2;
  double hue = 0.1;
};

template <class Visitor>
void fields(Visitor& v, ColorJitter& s) {
  v("probability", s.probability, "of changing a picture's colors at all; 0: never", config::in_range(0, 1));
  v("brightness", s.brightness, "factor from [1 - v, 1 + v]", config::at_least(0));
  v("contrast", s.contrast, "factor from [1 - v, 1 + v]", config::at_least(0));
  v("saturation", s.saturation, "factor from [1 - v, 1 + v]", config::at_least(0));
  v("hue", s.hue, "shift from [-v, v] turns of the color wheel", config::in_range(0, 0.5));
}

/// Pillow's Gaussian blur, as DINO's recipe uses it.
struct Blur {
  double probability = 0.0;
  std::array<double, 2> radius = {0.1, 2.0};
};

template <class Visitor>
void fields(Visitor& v, Blur& s) {
  v("probability", s.probability, "0: never", config::in_range(0, 1));
  v("radius", s.radius, "standard deviation in pixels of the crop, [low, high]", config::at_least(0));
}

std::optional<config::Problem> validate(const Blur& s);

/// Inversion of light pixels, as DINO's recipe has it.
struct Solarize {
  double probability = 0.0;
  double threshold = 128.0;
};

template <class Visitor>
void fields(Visitor& v, Solarize& s) {
  v("probability", s.probability, "0: never", config::in_range(0, 1));
  v("threshold", s.threshold, "levels from here on become 255 minus themselves", config::in_range(0, 256));
}

/// torchvision's RandAugment: so many operations, drawn with repetition, all of one magnitude.
struct RandAugment {
  std::int64_t operations = 0;
  std::int64_t magnitude = 9;
  std::int64_t bins = 31;
};

template <class Visitor>
void fields(Visitor& v, RandAugment& s) {
  v("operations", s.operations, "n of RandAugment: operations for each picture (2 in the paper); 0: none", config::in_range(0, 100));
  v("magnitude", s.magnitude, "of all of them, 0 to bins - 1", config::at_least(0));
  v("bins", s.bins, "steps from no effect to the strongest", config::in_range(2, 1000));
}

std::optional<config::Problem> validate(const RandAugment& s);

/// Random changes of training pictures; every choice follows from (seed, epoch, sample). In this order: crop, flip, AutoAugment,
/// RandAugment, color jitter, greyscale, blur, solarization.
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
    "random: a random-resized crop; evaluation: the whole picture as model.preprocessing makes it, at full scale, the same "
    "in every epoch (scale and ratio mean nothing then)",
    config::one_of({"random", "evaluation"}));
  v("scale", s.scale, "share of the picture's area that a random-resized crop takes, [low, high]", config::in_range(0, 1));
  v("ratio", s.ratio, "width / height of the crop, [low, high]", config::above(0));
  v("flip", s.flip, "probability of a horizontal flip (captions that say left and right want 0)", config::in_range(0, 1));
  v("auto_augment", s.auto_augment, "imagenet: AutoAugment with the policy learnt there", config::one_of({"none", "imagenet"}));
  v("rand_augment", s.rand_augment, "RandAugment");
  v("color_jitter", s.color_jitter, "random brightness, contrast, saturation and hue");
  v("grayscale", s.grayscale, "probability of losing all color", config::in_range(0, 1));
  v("blur", s.blur, "Gaussian blur");
  v("solarize", s.solarize, "inversion of light pixels");
}

std::optional<config::Problem> validate(const Augmentation& s);

}  // namespace tessera
