#pragma once

#include <array>
#include <string_view>

#include <tessera/base/random.h>
#include <tessera/data/image/augmentation.h>
#include <tessera/sample.h>

namespace tessera {

/// Applies an operation of AutoAugment or RandAugment, given by its name in torchvision ("ShearX", "Posterize", ...). Geometric
/// operations use nearest neighbor sampling and fill with black. `magnitude` is in the operation's own unit; operations without
/// a magnitude ignore it.
void apply_operation(Image& image, std::string_view name, double magnitude);

/// Returns the magnitude of an operation for bin `bin` of `bins`, before its sign is drawn; 0 for operations without a
/// magnitude.
double magnitude_of(std::string_view name, std::int64_t bin, std::int64_t bins, std::int64_t height,
                    std::int64_t width);

void rand_augment(Image& image, const RandAugment& settings, Random random);
/// Applies AutoAugment with the policy learned on ImageNet (Cubuk et al., 2019).
void auto_augment(Image& image, Random random);

// In-place operations on 8-bit RGB images. Results are bit-identical to torchvision's for PIL images (torchvision 0.26, Pillow 13).

/// The next four functions blend the image with another one: brightness with black, contrast with the image's mean gray,
/// saturation with its grayscale version, and sharpness with its blurred version. Factor 0 yields the other image, factor 1
/// changes nothing.
void adjust_brightness(Image& image, double factor);
void adjust_contrast(Image& image, double factor);
void adjust_saturation(Image& image, double factor);
void adjust_sharpness(Image& image, double factor);
/// Shifts the hue by `shift` in [-0.5, 0.5], in turns of the color wheel.
void adjust_hue(Image& image, double shift);

void to_grayscale(Image& image);
/// Replaces each level x >= `threshold` by 255 - x.
void solarize(Image& image, double threshold);
/// Keeps the upper `bits` bits (0 to 8) of each level.
void posterize(Image& image, int bits);
void autocontrast(Image& image);
void equalize(Image& image);
void invert(Image& image);

/// Blurs as Pillow's ImageFilter.GaussianBlur does, which DINO uses: with three passes of a box filter with soft edges.
/// `radius` is the standard deviation in pixels.
void gaussian_blur(Image& image, double radius);

/// Sets output pixel (x, y) to the input pixel nearest to (m0 x + m1 y + m2, m3 x + m4 y + m5), or to black if that is outside
/// the image.
void affine(Image& image, const std::array<double, 6>& matrix);
/// Rotates counterclockwise about the center.
void rotate(Image& image, double degrees);

}  // namespace tessera
