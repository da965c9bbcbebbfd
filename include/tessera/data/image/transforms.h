#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include <ATen/core/Tensor.h>

#include <tessera/base/random.h>
#include <tessera/preprocessing.h>
#include <tessera/sample.h>

namespace tessera {

/// Decodes the bytes of a JPEG, PNG, WebP, GIF, BMP or TIFF file (of an animation, the first frame) to 8-bit RGB, as OpenCLIP does in
/// training (convert("RGB") first). Alpha is dropped, palette transparency is ignored, and Adobe CMYK is converted as Pillow does. Throws
/// SampleError (`bad_image`, `truncated`, `empty_image`, `too_large`) with a message that says what was found.
Image decode_image(std::string_view file, std::int64_t max_pixels = kDefaultMaxPixels, const Decoding& decoding = {});

/// Turns an image as its EXIF orientation says: 2 to 4 mirror or rotate by 180 degrees, 5 to 8 exchange rows and columns, others do
/// nothing.
Image turned(const Image& image, int orientation);

/// Resizes with antialiasing. The result equals Pillow's bit for bit (8-bit, two passes). interpolation: bicubic or bilinear.
Image resize(const Image& image, std::int64_t height, std::int64_t width, const std::string& interpolation);
Image crop(const Image& image, const Box& box);

/// Applies the 8-bit part of the evaluation transform. With resize_mode naflex, resizes the image to the size of its patch grid. With any
/// other resize_mode, resizes the image and then crops or pads it to the configured size.
Image preprocess(const Image& image, const Preprocessing& settings);

/// Returns the part of an image that the output of preprocess() shows, as top, left, height, width in pixels of the original image. The
/// part extends beyond the image if preprocess() pads.
std::array<double, 4> preprocessed_part(std::int64_t height, std::int64_t width, const Preprocessing& settings);

/// Converts a box [top, left, height, width] in pixels of an image to coordinates in the output of preprocess(). Returns left, top, right
/// and bottom as fractions of the output's width and height. A fraction is below 0 or above 1 if the box extends beyond the output.
std::array<double, 4> preprocessed_box(const Box& box, std::int64_t height, std::int64_t width,
                                       const Preprocessing& settings);

/// Applies the geometry of preprocess() to a class mask, with nearest neighbor resampling. mask [H, W] -> [h, w].
std::vector<std::uint8_t> preprocess_mask(const std::vector<std::uint8_t>& mask, std::int64_t height, std::int64_t width,
                                          const Preprocessing& settings);

/// Applies the geometry of preprocess() to depths [H, W] -> [h, w]. Padding has depth 0.
std::vector<float> preprocess_depth(const std::vector<float>& depth, std::int64_t height, std::int64_t width,
                                    const Preprocessing& settings);

/// Draws the box of a random resized crop as torchvision does. `uniform` returns random numbers in [0, 1). They determine, in this order,
/// the area and aspect ratio of each attempt, then top, then left.
Box random_resized_crop(std::int64_t height, std::int64_t width, std::array<double, 2> scale, std::array<double, 2> ratio,
                        const std::function<double()>& uniform);

/// Crops the image to the box, then resizes it. Pixels outside the box do not affect the result.
Image crop_resize(const Image& image, const Box& box, const config::Size& size, const std::string& interpolation);

/// Returns the image as uint8 [3, H, W].
at::Tensor to_tensor(const Image& image);

}  // namespace tessera
