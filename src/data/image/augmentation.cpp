#include <algorithm>
#include <vector>

#include "src/data/image/augment.h"
#include "src/data/image/image_views.h"
#include <tessera/data/image/image_settings.h>

namespace tessera {
namespace {

void jitter_colors(Image& image, const ColorJitter& settings, Random random) {
  if (!random.chance(settings.probability)) return;
  const auto factor = [&](double strength) { return random.uniform(std::max(0.0, 1 - strength), 1 + strength); };
  std::vector<int> order = {0, 1, 2, 3};
  random.shuffle(order);
  const double brightness = factor(settings.brightness), contrast = factor(settings.contrast);
  const double saturation = factor(settings.saturation), hue = random.uniform(-settings.hue, settings.hue);
  for (const int step : order) {
    if (step == 0 && settings.brightness > 0) adjust_brightness(image, brightness);
    if (step == 1 && settings.contrast > 0) adjust_contrast(image, contrast);
    if (step == 2 && settings.saturation > 0) adjust_saturation(image, saturation);
    if (step == 3 && settings.hue > 0) adjust_hue(image, hue);
  }
}

std::optional<config::Problem> ordered(const char* key, const std::array<double, 2>& range) {
  if (range[0] <= range[1]) return std::nullopt;
  return config::Problem{key, concat("expected [low, high], got [", range[0], ", ", range[1], "]")};
}

}  // namespace

bool changes_pixels(const Augmentation& settings) {
  return settings.auto_augment != "none" || settings.rand_augment.operations > 0 ||
         settings.color_jitter.probability > 0 || settings.grayscale > 0 || settings.blur.probability > 0 ||
         settings.solarize.probability > 0;
}

void augment(Image& image, const Augmentation& settings, const std::function<Random(Purpose)>& draws) {
  if (settings.auto_augment == "imagenet") auto_augment(image, draws(Purpose::auto_augment));
  if (settings.rand_augment.operations > 0) rand_augment(image, settings.rand_augment, draws(Purpose::rand_augment));
  if (settings.color_jitter.probability > 0) jitter_colors(image, settings.color_jitter, draws(Purpose::color));
  if (settings.grayscale > 0 && draws(Purpose::grayscale).chance(settings.grayscale)) to_grayscale(image);
  if (settings.blur.probability > 0) {
    Random random = draws(Purpose::blur);
    if (random.chance(settings.blur.probability))
      gaussian_blur(image, random.uniform(settings.blur.radius[0], settings.blur.radius[1]));
  }
  if (settings.solarize.probability > 0 && draws(Purpose::solarize).chance(settings.solarize.probability))
    solarize(image, settings.solarize.threshold);
}

std::optional<config::Problem> validate(const Augmentation& s) {
  const auto scale = ordered("scale", s.scale);
  return scale ? scale : ordered("ratio", s.ratio);
}

std::optional<config::Problem> validate(const Blur& s) {
  return ordered("radius", s.radius);
}

std::optional<config::Problem> validate(const ImageSettings& s) {
  if (s.views.contains("image"))
    return config::Problem{"views", "cannot redefine `image`: its settings are `augmentation`"};
  return std::nullopt;
}

}  // namespace tessera
