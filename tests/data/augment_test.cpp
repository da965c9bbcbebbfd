#include "src/data/image/augment.h"

#include <sstream>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/data/images.h"
#include "tests/support/test_data.h"
#include <tessera/io/safetensors.h>

namespace tessera {
namespace {

const io::TensorFile& references() {
  static const io::TensorFile file = io::load_safetensors(test_data("images/augmentations.safetensors"));
  return file;
}

Image reference_image(const std::string& name) {
  const at::Tensor rgb = references().tensors.at(name).contiguous();
  const auto* begin = rgb.data_ptr<std::uint8_t>();
  return {rgb.size(0), rgb.size(1), {begin, begin + rgb.numel()}};
}

void apply_named(Image& image, const std::string& name, double value) {
  if (name == "brightness")
    adjust_brightness(image, value);
  else if (name == "contrast")
    adjust_contrast(image, value);
  else if (name == "saturation")
    adjust_saturation(image, value);
  else if (name == "sharpness")
    adjust_sharpness(image, value);
  else if (name == "hue")
    adjust_hue(image, value);
  else if (name == "blur")
    gaussian_blur(image, value);
  else if (name == "grayscale")
    to_grayscale(image);
  else
    apply_operation(image, name, value);
}

// A key of the reference file names the image, the operation, its magnitude bin (of 31) if it has one, and its parameter.
TEST(Augment, EveryOperationMatchesTorchvisionsPixels) {
  int compared = 0;
  for (const auto& [key, expected] : references().tensors) {
    std::istringstream words(key);
    std::string file, name;
    std::vector<std::string> rest;
    words >> file >> name;
    for (std::string word; words >> word;) rest.push_back(word);
    if (name.empty()) continue;
    const double value = rest.empty() ? 0 : std::stod(rest.back());
    if (rest.size() == 2) {
      EXPECT_FLOAT_EQ(static_cast<float>(magnitude_of(name, std::stoll(rest[0]), 31, 20, 25)),
                      static_cast<float>(std::abs(value)))
          << key;
    }
    Image image = reference_image(file);
    apply_named(image, name, value);
    const Image wanted = reference_image(key);
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < wanted.pixels.size(); ++i) wrong += image.pixels[i] != wanted.pixels[i] ? 1 : 0;
    EXPECT_EQ(wrong, 0U) << key;
    ++compared;
  }
  EXPECT_GT(compared, 60);
}

TEST(Augment, EveryOperationKeepsTheSizeOfTinyImages) {
  for (const auto& [height, width] : std::vector<std::pair<std::int64_t, std::int64_t>>{{1, 1}, {1, 7}, {2, 2}, {5, 1}})
    for (const char* name : {"brightness", "contrast", "saturation", "sharpness", "hue", "blur", "grayscale", "ShearX",
                             "ShearY", "TranslateX", "Rotate", "AutoContrast", "Equalize"}) {
      Image image = test::noise(height, width, 1);
      apply_named(image, name, 0.4);
      EXPECT_EQ(image.pixels.size(), static_cast<std::size_t>(height * width * 3)) << name;
    }
}

TEST(Augment, RandomPoliciesDependOnlyOnTheSeed) {
  const Image in = test::noise(24, 20, 3);
  const RandAugment settings{2, 9};
  std::size_t changed = 0;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    Image a = in, b = in, c = in, d = in;
    Random first(seed, Purpose::rand_augment), second(seed, Purpose::rand_augment);
    rand_augment(a, settings, first);
    rand_augment(b, settings, second);
    EXPECT_EQ(a.pixels, b.pixels);
    Random third(seed, Purpose::auto_augment), fourth(seed, Purpose::auto_augment);
    auto_augment(c, third);
    auto_augment(d, fourth);
    EXPECT_EQ(c.pixels, d.pixels);
    changed += a.pixels != in.pixels && c.pixels != in.pixels ? 1 : 0;
  }
  EXPECT_GT(changed, 20U);
}

}  // namespace
}  // namespace tessera
