#include "src/models/hidden_patches.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <ATen/ATen.h>

#include "src/models/per_sample_rng.h"
#include <tessera/base/random.h>

namespace tessera {
namespace {

constexpr std::int64_t kLeastBlock = 4;  // minimum area of a rectangle, in patches
constexpr double kLeastAspect = 0.3;
constexpr int kAttempts = 10;  // after this many failed attempts in a row to place a rectangle, single patches are hidden

/// The hidden patches of one image.
class HiddenBlocks {
 public:
  HiddenBlocks(config::Size grid, std::int64_t wanted, bool* hidden) : grid_(grid), wanted_(wanted), hidden_(hidden) {}

  void draw(Random& random) {
    int attempts = 0;
    while (count_ < wanted_ && attempts < kAttempts) attempts = add_block(random) ? 0 : attempts + 1;
    std::vector<std::int64_t> visible;
    for (std::int64_t i = 0; i < grid_.height * grid_.width; ++i)
      if (!hidden_[i]) visible.push_back(i);
    while (count_ < wanted_) {
      const auto place = visible.begin() + random.below(std::ssize(visible));
      hide(*place);
      visible.erase(place);
    }
  }

 private:
  // Tries to hide a random rectangle. Hides nothing and returns false if the rectangle is too large for the grid, would hide too many
  // patches, or contains only hidden patches.
  bool add_block(Random& random) {
    const std::int64_t left = wanted_ - count_;
    if (left < kLeastBlock) return false;
    const double area = random.uniform(static_cast<double>(kLeastBlock), static_cast<double>(left));
    const double aspect = std::exp(random.uniform(std::log(kLeastAspect), -std::log(kLeastAspect)));
    const auto height = static_cast<std::int64_t>(std::round(std::sqrt(area * aspect)));
    const auto width = static_cast<std::int64_t>(std::round(std::sqrt(area / aspect)));
    if (height < 1 || width < 1 || height >= grid_.height || width >= grid_.width) return false;
    const std::int64_t top = random.below(grid_.height - height + 1), first = random.below(grid_.width - width + 1);
    std::vector<std::int64_t> fresh;
    for (std::int64_t y = top; y < top + height; ++y)
      for (std::int64_t x = first; x < first + width; ++x)
        if (!hidden_[y * grid_.width + x]) fresh.push_back(y * grid_.width + x);
    if (fresh.empty() || std::ssize(fresh) > left) return false;
    for (const std::int64_t patch : fresh) hide(patch);
    return true;
  }

  void hide(std::int64_t patch) {
    hidden_[patch] = true;
    ++count_;
  }

  config::Size grid_;
  std::int64_t wanted_, count_ = 0;
  bool* hidden_;
};

}  // namespace

at::Tensor draw_hidden_patches(const HiddenPatches& settings, std::int64_t rows, config::Size grid,
                               const at::Device& device) {
  const std::int64_t patches = grid.height * grid.width;
  const std::int64_t wanted = std::clamp<std::int64_t>(
      static_cast<std::int64_t>(settings.share * static_cast<double>(patches)), 1, std::max<std::int64_t>(1, patches));
  if (!settings.blocks) {
    const at::Tensor chosen = std::get<1>(row_random_int(rows, patches, device).topk(wanted, 1));
    return at::zeros({rows, patches}, at::TensorOptions(device).dtype(at::kBool)).scatter_(1, chosen, true);
  }
  const at::Tensor seeds = row_random_int(rows, 1, device).cpu();
  const at::Tensor hidden = at::zeros({rows, patches}, at::kBool);
  for (std::int64_t row = 0; row < rows; ++row) {
    Random random(static_cast<std::uint64_t>(seeds.data_ptr<std::int64_t>()[row]), Purpose::step);
    HiddenBlocks(grid, wanted, hidden.data_ptr<bool>() + row * patches).draw(random);
  }
  return hidden.to(device);
}

}  // namespace tessera
