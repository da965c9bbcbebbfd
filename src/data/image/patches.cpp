#include <algorithm>
#include <cmath>
#include <cstring>

#include <ATen/ATen.h>

#include "src/data/image/patches.h"

namespace tessera {
namespace {

constexpr double kPrecision = 1e-5;  // precision of the scale; this value and the bounds below are the same as in transformers
constexpr double kLeastScale = kPrecision / 10, kLargestScale = 100;

}  // namespace

config::Size patch_grid(std::int64_t height, std::int64_t width, config::Size patch, std::int64_t max_patches) {
  TORCH_CHECK(height > 0 && width > 0 && patch.height > 0 && patch.width > 0 && max_patches > 0,
              "patch_grid: expected an image and patches, got ", height, " x ", width, " pixels, ", max_patches,
              " patches of ", patch.height, " x ", patch.width);
  const auto count = [](double scale, std::int64_t side, std::int64_t of_patch) {
    const double patches = std::ceil(static_cast<double>(side) * scale / static_cast<double>(of_patch));
    return std::max<std::int64_t>(1, static_cast<std::int64_t>(patches));
  };
  const auto grid = [&](double scale) {
    return config::Size(count(scale, height, patch.height), count(scale, width, patch.width));
  };
  double low = kLeastScale, high = kLargestScale;
  while (high - low >= kPrecision) {
    const double middle = (low + high) / 2;
    const config::Size found = grid(middle);
    (found.height * found.width <= max_patches ? low : high) = middle;
  }
  return grid(low);
}

config::Size size_in_patches(std::int64_t height, std::int64_t width, const Preprocessing& preprocessing) {
  TORCH_CHECK(preprocessing.patch_size, "preprocessing: naflex needs a patch size");
  const config::Size patch = *preprocessing.patch_size, grid = patch_grid(height, width, patch, preprocessing.max_patches);
  return {grid.height * patch.height, grid.width * patch.width};
}

config::Size fullest_grid(std::int64_t patches) {
  auto rows = static_cast<std::int64_t>(std::sqrt(static_cast<double>(patches)));
  while (patches % rows != 0) --rows;
  return {rows, patches / rows};
}

void write_patches(const std::uint8_t* planes, config::Size image, config::Size patch, std::uint8_t* out) {
  const auto bytes = static_cast<std::size_t>(patch.width);
  for (std::int64_t top = 0; top < image.height; top += patch.height)
    for (std::int64_t left = 0; left < image.width; left += patch.width)
      for (std::int64_t color = 0; color < 3; ++color)
        for (std::int64_t y = top; y < top + patch.height; ++y, out += patch.width)
          std::memcpy(out, planes + (color * image.height + y) * image.width + left, bytes);
}

TowerInput image_batch(const std::vector<at::Tensor>& images, const Preprocessing& preprocessing) {
  if (!keeps_shapes(preprocessing)) return image_input(at::stack(images));
  TORCH_CHECK(!images.empty() && preprocessing.patch_size, "image_batch: expected images, and a patch size");
  const config::Size patch = *preprocessing.patch_size;
  const std::int64_t values = 3 * patch.height * patch.width, count = std::ssize(images);
  TowerInput out;
  out.patches = at::zeros({count, preprocessing.max_patches, values}, at::kByte);
  out.grids = at::empty({count, 2}, at::kLong);
  auto* const grids = out.grids.data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < count; ++i) {
    const at::Tensor image = images[static_cast<std::size_t>(i)].cpu().contiguous();
    const config::Size size(image.size(1), image.size(2));
    grids[2 * i] = size.height / patch.height;
    grids[2 * i + 1] = size.width / patch.width;
    TORCH_CHECK(size.height % patch.height == 0 && size.width % patch.width == 0 &&
                    grids[2 * i] * grids[2 * i + 1] <= preprocessing.max_patches,
                "image_batch: expected at most ", preprocessing.max_patches, " patches of ", patch.height, " x ",
                patch.width, ", got an image of ", size.height, " x ", size.width);
    write_patches(image.const_data_ptr<std::uint8_t>(), size, patch,
                  out.patches.data_ptr<std::uint8_t>() + i * preprocessing.max_patches * values);
  }
  out.mask = at::arange(preprocessing.max_patches).unsqueeze(0) < out.grids.prod(1, /*keepdim=*/true);
  return out;
}

}  // namespace tessera
