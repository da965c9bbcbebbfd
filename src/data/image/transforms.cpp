#include <cmath>
#include <cstring>

#include <ATen/ATen.h>

#include "src/data/image/patches.h"
#include "src/data/image/resample.h"
#include "src/data/image/resample_loops.h"
#include <tessera/data/image/transforms.h>

namespace tessera {
namespace {

/// Rounds as Python's round() does: half to even, which is the default rounding mode.
std::int64_t round_half_even(double x) {
  return static_cast<std::int64_t>(std::nearbyint(x));
}

// The geometry of the evaluation transform. The image is resized to `size`. The output has `target` pixels and starts at (top,
// left) of the resized image; a negative top or left means that padding comes first.
struct Geometry {
  config::Size target;
  config::Size size;
  std::int64_t top = 0;
  std::int64_t left = 0;
  Filter filter = Filter::bicubic;
};

// Returns where the crop starts along one side. If the image is smaller than the target (resize_mode longest), returns -n, where
// n is half of the missing pixels, rounded down. The image then starts after n pixels of padding.
std::int64_t offset_of(std::int64_t size, std::int64_t target, bool round_down) {
  if (size < target) return -((target - size) / 2);
  return round_down ? (size - target) / 2 : round_half_even(static_cast<double>(size - target) / 2.0);
}

// Returns the target size for the resize before the center crop.
config::Size before_crop(const Preprocessing& settings) {
  const auto larger = [&](std::int64_t side) {
    return static_cast<std::int64_t>(std::floor(static_cast<double>(side) / settings.crop_pct));
  };
  return {larger(settings.image_size.height), larger(settings.image_size.width)};
}

// Scales both sides by one ratio. If `longest`, the image then fits into the target; otherwise it covers the target. The target need not be
// square.
config::Size keep_ratio(std::int64_t height, std::int64_t width, const config::Size& target, bool longest) {
  const double by_height = static_cast<double>(height) / static_cast<double>(target.height);
  const double by_width = static_cast<double>(width) / static_cast<double>(target.width);
  const double ratio = longest ? std::max(by_height, by_width) : std::min(by_height, by_width);
  return {std::max<std::int64_t>(round_half_even(static_cast<double>(height) / ratio), 1),
          std::max<std::int64_t>(round_half_even(static_cast<double>(width) / ratio), 1)};
}

Geometry geometry_of(std::int64_t height, std::int64_t width, const Preprocessing& settings) {
  TORCH_CHECK(height > 0 && width > 0, "preprocess: expected an image, got ", height, " x ", width);
  const config::Size& kept = settings.image_size;
  Geometry g;
  g.filter = filter_named(settings.interpolation);
  g.target = kept;
  if (keeps_shapes(settings)) {
    g.target = g.size = size_in_patches(height, width, settings);
    return g;
  }
  if (kept == config::Size(height, width)) {
    g.size = kept;
    return g;
  }
  const config::Size target = before_crop(settings);
  if (settings.resize_mode == "squash") {
    g.size = target;
  } else if (settings.resize_mode == "longest") {
    g.size = keep_ratio(height, width, target, true);
  } else if (target.height != target.width) {
    g.size = keep_ratio(height, width, target, false);
    g.filter = Filter::bicubic;  // as in OpenCLIP, which ignores the interpolation setting in ResizeKeepRatio
  } else {
    const std::int64_t side = target.height;
    g.size = height <= width ? config::Size(side, side * width / height) : config::Size(side * height / width, side);
  }
  const bool round_down = settings.crop_rounding == "down";
  g.top = offset_of(g.size.height, kept.height, round_down);
  g.left = offset_of(g.size.width, kept.width, round_down);
  return g;
}

PixelView view_of(const Image& image, const Box& box) {
  const auto [top, left, height, width] = box;
  TORCH_CHECK(
      top >= 0 && left >= 0 && height > 0 && width > 0 && top + height <= image.height && left + width <= image.width,
      "box [", top, ", ", left, ", ", height, ", ", width, "] is not inside the image of ", image.height, " x ",
      image.width);
  return {image.pixels.data() + (top * image.width + left) * 3, height, width, image.width * 3};
}

Box whole(const Image& image) {
  return {0, 0, image.height, image.width};
}

}  // namespace

Filter filter_named(const std::string& name) {
  TORCH_CHECK(name == "bicubic" || name == "bilinear", "interpolation must be bicubic or bilinear, got ", name);
  return name == "bicubic" ? Filter::bicubic : Filter::bilinear;
}

Image resize(const Image& image, std::int64_t height, std::int64_t width, const std::string& interpolation) {
  TORCH_CHECK(height > 0 && width > 0, "resize: expected a positive size, got ", height, " x ", width);
  return resample(view_of(image, whole(image)), height, width, filter_named(interpolation));
}

Image crop(const Image& image, const Box& box) {
  const PixelView view = view_of(image, box);
  return resample(view, view.height, view.width, Filter::bicubic);  // only copies, because the size stays the same
}

Image preprocess(const Image& image, const Preprocessing& settings) {
  const Geometry g = geometry_of(image.height, image.width, settings);
  const config::Size& target = g.target;
  // The part of the target that the resized image covers; the rest is padding.
  const std::int64_t x_begin = std::max<std::int64_t>(0, -g.left);
  const std::int64_t y_begin = std::max<std::int64_t>(0, -g.top);
  const std::int64_t reached_width = std::min(target.width, g.size.width - g.left) - x_begin;
  const std::int64_t reached_height = std::min(target.height, g.size.height - g.top) - y_begin;
  Image reached = resample(view_of(image, whole(image)), g.size.height, g.size.width, g.filter,
                           {y_begin + g.top, x_begin + g.left, reached_height, reached_width});
  if (reached_height == target.height && reached_width == target.width) return reached;
  const auto fill = static_cast<std::uint8_t>(settings.fill_color);
  Image out{target.height, target.width,
            std::vector<std::uint8_t>(static_cast<std::size_t>(target.height * target.width * 3), fill)};
  for (std::int64_t y = 0; y < reached_height; ++y)
    std::memcpy(out.pixels.data() + ((y + y_begin) * target.width + x_begin) * 3,
                reached.pixels.data() + y * reached_width * 3, static_cast<std::size_t>(reached_width * 3));
  return out;
}

std::array<double, 4> preprocessed_part(std::int64_t height, std::int64_t width, const Preprocessing& settings) {
  const Geometry g = geometry_of(height, width, settings);
  const auto in_image = [](std::int64_t resized, std::int64_t side, std::int64_t resized_side) {
    return static_cast<double>(resized) * static_cast<double>(side) / static_cast<double>(resized_side);
  };
  return {in_image(g.top, height, g.size.height), in_image(g.left, width, g.size.width),
          in_image(g.target.height, height, g.size.height), in_image(g.target.width, width, g.size.width)};
}

std::array<double, 4> preprocessed_box(const Box& box, std::int64_t height, std::int64_t width,
                                       const Preprocessing& settings) {
  const std::array<double, 4> part = preprocessed_part(height, width, settings);
  const auto share = [&](std::int64_t place, std::size_t axis) {
    return (static_cast<double>(place) - part[axis]) / part[axis + 2];
  };
  return {share(box[1], 1), share(box[0], 0), share(box[1] + box[3], 1), share(box[0] + box[2], 0)};
}

namespace {

/// Applies the geometry of preprocess() to one value per pixel, without mixing neighboring values.
template <class T>
std::vector<T> preprocess_values(const std::vector<T>& values, std::int64_t height, std::int64_t width,
                                 const Preprocessing& settings, T padding) {
  TORCH_CHECK(static_cast<std::int64_t>(values.size()) == height * width, "preprocess: expected ", height, " x ", width,
              " values, got ", values.size());
  const Geometry g = geometry_of(height, width, settings);
  const config::Size& target = g.target;
  std::vector<T> out(static_cast<std::size_t>(target.height * target.width), padding);
  for (std::int64_t y = 0; y < target.height; ++y) {
    const std::int64_t resized_y = y + g.top;
    if (resized_y < 0 || resized_y >= g.size.height) continue;
    const std::int64_t from_y = (2 * resized_y + 1) * height / (2 * g.size.height);  // floor((y + 1/2) * scale)
    for (std::int64_t x = 0; x < target.width; ++x) {
      const std::int64_t resized_x = x + g.left;
      if (resized_x < 0 || resized_x >= g.size.width) continue;
      const std::int64_t from_x = (2 * resized_x + 1) * width / (2 * g.size.width);
      out[static_cast<std::size_t>(y * target.width + x)] = values[static_cast<std::size_t>(from_y * width + from_x)];
    }
  }
  return out;
}

}  // namespace

std::vector<std::uint8_t> preprocess_mask(const std::vector<std::uint8_t>& mask, std::int64_t height,
                                          std::int64_t width, const Preprocessing& settings) {
  constexpr std::uint8_t ignored = 255;
  return preprocess_values(mask, height, width, settings, ignored);
}

std::vector<float> preprocess_depth(const std::vector<float>& depth, std::int64_t height, std::int64_t width,
                                    const Preprocessing& settings) {
  return preprocess_values(depth, height, width, settings, 0.0F);
}

Box random_resized_crop(std::int64_t height, std::int64_t width, std::array<double, 2> scale,
                        std::array<double, 2> ratio, const std::function<double()>& uniform) {
  const double area = static_cast<double>(height) * static_cast<double>(width);
  const double log_low = std::log(ratio[0]);
  const double log_high = std::log(ratio[1]);
  for (int attempt = 0; attempt < 10; ++attempt) {
    const double target = area * (scale[0] + (scale[1] - scale[0]) * uniform());
    const double aspect = std::exp(log_low + (log_high - log_low) * uniform());
    const std::int64_t w = round_half_even(std::sqrt(target * aspect));
    const std::int64_t h = round_half_even(std::sqrt(target / aspect));
    if (w <= 0 || h <= 0 || w > width || h > height) continue;
    const auto top = static_cast<std::int64_t>(std::floor(uniform() * static_cast<double>(height - h + 1)));
    const auto left = static_cast<std::int64_t>(std::floor(uniform() * static_cast<double>(width - w + 1)));
    return {top, left, h, w};
  }
  std::int64_t h = height;
  std::int64_t w = width;
  const double shape = static_cast<double>(width) / static_cast<double>(height);
  const double low = std::min(ratio[0], ratio[1]);
  const double high = std::max(ratio[0], ratio[1]);
  // A clamp is needed, because the new side may round to 0 if the other side is one pixel long.
  if (shape < low)
    h = std::clamp<std::int64_t>(round_half_even(static_cast<double>(w) / low), 1, height);
  else if (shape > high)
    w = std::clamp<std::int64_t>(round_half_even(static_cast<double>(h) * high), 1, width);
  return {(height - h) / 2, (width - w) / 2, h, w};
}

Image crop_resize(const Image& image, const Box& box, const config::Size& size, const std::string& interpolation) {
  return resample(view_of(image, box), size.height, size.width, filter_named(interpolation));
}

void write_planes(const Image& image, std::uint8_t* out) {
  resample_loops().planes(image.pixels.data(), out, image.height * image.width);
}

at::Tensor to_tensor(const Image& image) {
  at::Tensor out = at::empty({3, image.height, image.width}, at::kByte);
  write_planes(image, out.data_ptr<std::uint8_t>());
  return out;
}

}  // namespace tessera
