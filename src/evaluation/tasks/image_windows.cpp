#include "src/evaluation/tasks/image_windows.h"

#include <cmath>

#include <ATen/ATen.h>

#include "src/evaluation/metrics/segmentation.h"
#include <tessera/base/error.h>
#include <tessera/data/image/transforms.h>

namespace tessera {
namespace {

/// Returns the size of the model's patches in pixels.
config::Size patch_size_of(const Embedder& embedder) {
  const Preprocessing& preprocessing = embedder.preprocessing();
  if (keeps_shapes(preprocessing)) return *preprocessing.patch_size;
  const config::Size image = preprocessing.image_size, grid = embedder.grid();
  return {image.height / grid.height, image.width / grid.width};
}

/// Returns the grid of a window's patches.
config::Size grid_of_window(std::int64_t size, config::Size patch) {
  const auto [height, width] = patch;
  if (size % height != 0 || size % width != 0)
    user_error("segmentation.windows.size is ", size, ", but this model's patches are ", height, " x ", width,
               ": take a multiple, such as ", std::max<std::int64_t>(1, size / height) * height);
  return {size / height, size / width};
}

}  // namespace

ImageWindows::ImageWindows(const Embedder& embedder, const WindowSettings& settings, PatchScores patches,
                               std::int64_t batch_size)
    : embedder_(embedder), patches_(std::move(patches)), batch_size_(batch_size) {
  const config::Size image = embedder.preprocessing().image_size;
  size_ = settings.size.value_or(std::min(image.height, image.width));
  stride_ = settings.stride.value_or(std::max<std::int64_t>(1, size_ / 2));
  short_side_ = settings.short_side;
  grid_ = grid_of_window(size_, patch_size_of(embedder));
}

at::Tensor ImageWindows::scores(const Image& image, const std::string& key) const {
  const std::int64_t now = std::min(image.height, image.width);
  const std::int64_t wanted = std::max(short_side_ > 0 ? short_side_ : now, size_);
  const double ratio = static_cast<double>(wanted) / static_cast<double>(now);
  const auto scaled = [&](std::int64_t side) { return std::llround(static_cast<double>(side) * ratio); };
  const Image resized = wanted == now ? image
                                      : resize(image, scaled(image.height), scaled(image.width),
                                               embedder_.preprocessing().interpolation);
  const at::Tensor pixels = to_tensor(resized);
  const auto corners = metrics::window_corners(resized.height, resized.width, size_, stride_);
  std::vector<at::Tensor> windows, scores;
  for (std::size_t i = 0; i < corners.size(); ++i) {
    windows.push_back(pixels.narrow(1, corners[i][0], size_).narrow(2, corners[i][1], size_));
    if (std::ssize(windows) < batch_size_ && i + 1 < corners.size()) continue;
    scores.push_back(scores_of(at::stack(windows), key));
    windows.clear();
  }
  return metrics::join_windows(at::cat(scores), corners, size_, resized.height, resized.width);
}

at::Tensor ImageWindows::scores_of(const at::Tensor& windows, const std::string& key) const {
  const at::Tensor maps = patches_.maps(embedder_.encode_images(windows, patches_.needs), grid_);
  if (!maps.isfinite().all().item<bool>())
    user_error("the model's patch embeddings of the image ", key, " are not finite: the weights are broken or the ",
               "training diverged; take an earlier checkpoint");
  return maps.to(at::kFloat);
}

}  // namespace tessera
