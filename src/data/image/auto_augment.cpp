
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

#include <c10/util/Exception.h>

#include "src/data/image/augment.h"

namespace tessera {
namespace {

struct Operation {
  std::string_view name;
  void (*apply)(Image& image, double magnitude);
  double low = 0, high = 0;  // magnitudes of the first and the last bin
  bool has_sign = false;
  bool of_width = false, of_height = false;  // whether magnitudes are shares of the width or the height
};

constexpr double kShift = 150.0 / 331.0;
// The operations in RandAugment's order. Invert comes last, because only AutoAugment uses it.
constexpr std::array<Operation, 15> kOperations = {{
    {"Identity", [](Image&, double) {}},
    {"ShearX", [](Image& image, double m) { affine(image, {1, m, 0, 0, 1, 0}); }, 0, 0.3, true},
    {"ShearY", [](Image& image, double m) { affine(image, {1, 0, 0, m, 1, 0}); }, 0, 0.3, true},
    {"TranslateX", [](Image& image, double m) { affine(image, {1, 0, -std::trunc(m), 0, 1, 0}); }, 0, kShift, true, true},
    {"TranslateY", [](Image& image, double m) { affine(image, {1, 0, 0, 0, 1, -std::trunc(m)}); }, 0, kShift, true, false, true},
    {"Rotate", rotate, 0, 30, true},
    {"Brightness", [](Image& image, double m) { adjust_brightness(image, 1 + m); }, 0, 0.9, true},
    {"Color", [](Image& image, double m) { adjust_saturation(image, 1 + m); }, 0, 0.9, true},
    {"Contrast", [](Image& image, double m) { adjust_contrast(image, 1 + m); }, 0, 0.9, true},
    {"Sharpness", [](Image& image, double m) { adjust_sharpness(image, 1 + m); }, 0, 0.9, true},
    {"Posterize", [](Image& image, double m) { posterize(image, static_cast<int>(m)); }, 8, 4},
    {"Solarize", solarize, 255, 0},
    {"AutoContrast", [](Image& image, double) { autocontrast(image); }},
    {"Equalize", [](Image& image, double) { equalize(image); }},
    {"Invert", [](Image& image, double) { invert(image); }},
}};
constexpr std::int64_t kRandOperations = static_cast<std::int64_t>(kOperations.size()) - 1;

const Operation& operation_named(std::string_view name) {
  const auto found =
      std::find_if(kOperations.begin(), kOperations.end(), [&](const Operation& each) { return each.name == name; });
  TORCH_CHECK(found != kOperations.end(), "no augmentation is called ", name);
  return *found;
}

/// A step of a policy: an operation, its probability, and its magnitude as one of 10 bins.
struct PolicyStep {
  std::string_view name;
  double probability = 0;
  std::int64_t bin = 0;
};

constexpr std::array<std::array<PolicyStep, 2>, 25> kImagenet = {{
    {{{"Posterize", 0.4, 8}, {"Rotate", 0.6, 9}}}, {{{"Solarize", 0.6, 5}, {"AutoContrast", 0.6}}},
    {{{"Equalize", 0.8}, {"Equalize", 0.6}}},      {{{"Posterize", 0.6, 7}, {"Posterize", 0.6, 6}}},
    {{{"Equalize", 0.4}, {"Solarize", 0.2, 4}}},   {{{"Equalize", 0.4}, {"Rotate", 0.8, 8}}},
    {{{"Solarize", 0.6, 3}, {"Equalize", 0.6}}},   {{{"Posterize", 0.8, 5}, {"Equalize", 1.0}}},
    {{{"Rotate", 0.2, 3}, {"Solarize", 0.6, 8}}},  {{{"Equalize", 0.6}, {"Posterize", 0.4, 6}}},
    {{{"Rotate", 0.8, 8}, {"Color", 0.4, 0}}},     {{{"Rotate", 0.4, 9}, {"Equalize", 0.6}}},
    {{{"Equalize", 0.0}, {"Equalize", 0.8}}},      {{{"Invert", 0.6}, {"Equalize", 1.0}}},
    {{{"Color", 0.6, 4}, {"Contrast", 1.0, 8}}},   {{{"Rotate", 0.8, 8}, {"Color", 1.0, 2}}},
    {{{"Color", 0.8, 8}, {"Solarize", 0.8, 7}}},   {{{"Sharpness", 0.4, 7}, {"Invert", 0.6}}},
    {{{"ShearX", 0.6, 5}, {"Equalize", 1.0}}},     {{{"Color", 0.4, 0}, {"Equalize", 0.6}}},
    {{{"Equalize", 0.4}, {"Solarize", 0.2, 4}}},   {{{"Solarize", 0.6, 5}, {"AutoContrast", 0.6}}},
    {{{"Invert", 0.6}, {"Equalize", 1.0}}},        {{{"Color", 0.6, 4}, {"Contrast", 1.0, 8}}},
    {{{"Equalize", 0.8}, {"Equalize", 0.6}}},
}};

double signed_magnitude(const Operation& operation, std::int64_t bin, std::int64_t bins, const Image& image,
                        Random& random) {
  const double magnitude = magnitude_of(operation.name, bin, bins, image.height, image.width);
  return operation.has_sign && random.chance(0.5) ? -magnitude : magnitude;
}

}  // namespace

double magnitude_of(std::string_view name, std::int64_t bin, std::int64_t bins, std::int64_t height,
                    std::int64_t width) {
  const Operation& operation = operation_named(name);
  if (name == "Posterize") return 8 - std::nearbyint(static_cast<double>(bin) / (static_cast<double>(bins - 1) / 4));
  // Computes the magnitude in float32 as torch.linspace does: starting from the nearer end of the range.
  const double side = operation.of_width    ? static_cast<double>(width)
                      : operation.of_height ? static_cast<double>(height)
                                            : 1.0;
  const auto low = static_cast<float>(operation.low), high = static_cast<float>(operation.high * side);
  const float step = (high - low) / static_cast<float>(bins - 1);
  return bin < bins / 2 ? low + step * static_cast<float>(bin) : high - step * static_cast<float>(bins - 1 - bin);
}

void apply_operation(Image& image, std::string_view name, double magnitude) {
  operation_named(name).apply(image, magnitude);
}

void rand_augment(Image& image, const RandAugment& settings, Random random) {
  for (std::int64_t i = 0; i < settings.operations; ++i) {
    const Operation& operation = kOperations[static_cast<std::size_t>(random.below(kRandOperations))];
    apply_operation(image, operation.name,
                    signed_magnitude(operation, settings.magnitude, kRandAugmentBins, image, random));
  }
}

void auto_augment(Image& image, Random random) {
  for (const PolicyStep& step : kImagenet[static_cast<std::size_t>(random.below(kImagenet.size()))]) {
    // The magnitude is drawn even if the step is not applied, so that later steps get the same random numbers in either case.
    const bool applied = random.chance(step.probability);
    const double magnitude = signed_magnitude(operation_named(step.name), step.bin, 10, image, random);
    if (applied) apply_operation(image, step.name, magnitude);
  }
}

}  // namespace tessera
