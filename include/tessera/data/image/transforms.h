#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include <ATen/core/Tensor.h>

#include <tessera/base/random.h>
#include <tessera/data/sample.h>
#include <tessera/preprocessing.h>

namespace tessera {

/// top, left, height, width in pixels.
using Box = std::array<std::int64_t, 4>;

/// Bytes of a JPEG, PNG, WebP, GIF (the first picture), BMP or TIFF file to 8-bit RGB, by the rules of OpenCLIP's training path (convert("RGB") first): alpha
/// dropped, palette transparency and EXIF orientation ignored, Adobe CMYK as Pillow converts it. Throws SampleError
/// (`bad_image`, `empty_image`, `too_large`) saying what was found.
Image decode_image(std::string_view file, std::int64_t max_pixels = kDefaultMaxPixels);

/// Antialiased resampling, bit for bit Pillow's (8-bit, two passes). interpolation: bicubic or bilinear.
Image resize(const Image& image, std::int64_t height, std::int64_t width, const std::string& interpolation);
Image crop(const Image& image, const Box& box);

/// The evaluation transform up to 8 bits: resize and crop or pad to the configured size; or resize to that of the image's patches,
/// where it keeps its shape (naflex).
Image preprocess(const Image& image, const Preprocessing& settings);

/// The part of a picture that preprocess() shows, top, left, height, width in the picture's pixels; larger than the picture
/// where it pads.
std::array<double, 4> preprocessed_part(std::int64_t height, std::int64_t width, const Preprocessing& settings);

/// Where preprocess() shows a box [top, left, height, width] of such a picture: left, top, right, bottom as shares of what is
/// shown, below 0 or above 1 where it reaches beyond.
std::array<double, 4> preprocessed_box(const std::array<std::int64_t, 4>& box, std::int64_t height, std::int64_t width,
                                       const Preprocessing& settings);

/// The same path for a class mask, nearest neighbor: what preprocess() does to the picture's geometry. mask [H, W] -> [h, w].
std::vector<std::uint8_t> preprocess_mask(const std::vector<std::uint8_t>& mask, std::int64_t height, std::int64_t width,
                                          const Preprocessing& settings);

/// The same for depths; 0 where the transform pads.
std::vector<float> preprocess_depth(const std::vector<float>& depth, std::int64_t height, std::int64_t width,
                                    const Preprocessing& settings);

/// Random-resized-crop box as torchvision draws it. `uniform` gives numbers in [0, 1), in the order area, aspect per attempt,
/// then top, left.
Box random_resized_crop(std::int64_t height, std::int64_t width, std::array<double, 2> scale, std::array<double, 2> ratio,
                        const std::function<double()>& uniform);

/// Crops, then resizes without looking outside the box.
Image crop_resize(const Image& image, const Box& box, const config::Size& size, const std::string& interpolation);

/// uint8 [3, H, W].
at::Tensor to_tensor(const Image& image);

}  // namespace tessera
