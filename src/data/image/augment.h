#pragma once

#include <array>

#include <tessera/data/sample.h>

namespace tessera {

// Changes of 8-bit RGB pictures in place, each bit for bit what torchvision does to a PIL image (torchvision 0.26,
// Pillow 13).

/// adjust_brightness, _contrast, _saturation, _sharpness: away from black, from the mean grey, from the picture's own
/// greys, from the blurred picture. factor: 0 gives these, 1 changes nothing.
void adjust_brightness(Image& image, double factor);
void adjust_contrast(Image& image, double factor);
void adjust_saturation(Image& image, double factor);
void adjust_sharpness(Image& image, double factor);
/// shift in [-0.5, 0.5] turns of the color wheel.
void adjust_hue(Image& image, double shift);

void to_grayscale(Image& image);
/// Levels of at least `threshold` become 255 minus themselves.
void solarize(Image& image, double threshold);
/// Keeps the upper `bits` of each level, 0..8.
void posterize(Image& image, int bits);
void autocontrast(Image& image);
void equalize(Image& image);
void invert(Image& image);

/// Pillow's ImageFilter.GaussianBlur, which DINO uses: three passes of a box with soft edges. radius: the standard
/// deviation in pixels.
void gaussian_blur(Image& image, double radius);

/// Output pixel (x, y) is input pixel (m0 x + m1 y + m2, m3 x + m4 y + m5), nearest; black outside.
void affine(Image& image, const std::array<double, 6>& matrix);
/// Counter-clockwise about the center.
void rotate(Image& image, double degrees);

}  // namespace tessera
