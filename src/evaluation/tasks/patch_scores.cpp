#include <cmath>

#include "src/evaluation/metrics/cosine.h"
#include "src/evaluation/metrics/segmentation.h"
#include "src/evaluation/tasks/patch_scores.h"
#include <tessera/base/error.h>
#include <tessera/data/image/transforms.h>

namespace tessera {
namespace {

const char* advice_of(const std::string& task) {
  return task == "segmentation" ? ": take by: groups" : "";
}

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

config::Size grid_of_image(const Embedder& embedder, TowerFeatures& image) {
  if (!image.grids.defined()) return embedder.grid();
  const config::Size grid = {image.grids[0][0].item<std::int64_t>(), image.grids[0][1].item<std::int64_t>()};
  for (at::Tensor* patches : {&image.tokens, &image.dense})
    if (patches->defined()) *patches = patches->narrow(1, 0, grid.height * grid.width);
  return grid;
}

void check_patch_grid(const std::string& task, const at::Tensor& patches, config::Size grid, const std::string& advice) {
  if (!patches.defined()) user_error(task, ": this model's image tower outputs no patch embeddings");
  if (patches.size(1) != grid.height * grid.width)
    user_error(task, ": this model's image tower outputs ", patches.size(1), " groups, not ", grid.height, " x ", grid.width, " patches",
               advice);
}

void check_patch_width(const std::string& task, std::int64_t patches, std::int64_t texts) {
  if (patches != texts)
    user_error(task, ": this model's patch embeddings are ", patches, " wide and those of its texts ", texts,
               ": take a read-out that keeps the tokens' width (gap, cls, max, eos), so that patches compare with texts");
}

at::Tensor PatchScores::maps(const TowerFeatures& images, config::Size grid) const {
  const at::Tensor scores = of(images, grid);
  return scores.transpose(1, 2).reshape({scores.size(0), names, grid.height, grid.width});
}

PatchScores cosines_of_patches(const at::Tensor& names, LastBlock last_block, const std::string& task) {
  const auto compare = [cosines = metrics::CosinesWith(names), task](const TowerFeatures& images, config::Size grid) {
    check_patch_grid(task, images.dense, grid, advice_of(task));
    check_patch_width(task, images.dense.size(2), cosines.width());
    return cosines(images.dense);
  };
  return {.needs = {.dense = true, .last_block = last_block}, .names = names.size(0), .of = compare};
}

PatchScores conditioned_patches(const ConditionedEmbedder& model, const TowerFeatures& names, bool attention, const std::string& task) {
  const auto compare = [&model, names, attention, task](const TowerFeatures& images, config::Size grid) {
    check_patch_grid(task, images.tokens, grid, advice_of(task));
    const metrics::ConditionedSimilarity& scores = model.with(names);
    return attention ? scores.attention(images.tokens) : scores.of_patches(images.tokens);
  };
  return {.needs = {.tokens = true}, .names = names.global.size(0), .of = compare};
}

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
                                      : resize(image, scaled(image.height), scaled(image.width), embedder_.preprocessing().interpolation);
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
