#pragma once

#include <array>

#include <tessera/data/sample.h>

namespace tessera {

// In-place operations on 8-bit RGB images, each bit for bit as in torchvision for PIL images (torchvision 0.26, Pillow 13).

/// adjust_brightness, _contrast, _saturation and _sharpness blend the image with black, its mean gray, its grayscale version and
/// its blurred version. factor: 0 yields only that other image, 1 changes nothing.
void adjust_brightness(Image& image, double factor);
void adjust_contrast(Image& image, double factor);
void adjust_saturation(Image& image, double factor);
void adjust_sharpness(Image& image, double factor);
/// shift in [-0.5, 0.5] turns of the color wheel.
void adjust_hue(Image& image, double shift);

void to_grayscale(Image& image);
/// Replaces levels x of at least `threshold` by 255 - x.
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
/// Rotates counterclockwise about the center.
void rotate(Image& image, double degrees);

}  // namespace tessera
