#include <algorithm>
#include <cmath>

#include <src/data/shapes/regions.h>
#include <tessera/base/random.h>

namespace tessera::shapes {
namespace {

constexpr std::int64_t kGrid = 8;
constexpr std::size_t kPixels = kGrid * kGrid * 3;
constexpr std::size_t kProjected = 2048;

// Returns the projection matrix [kPixels, kProjected], which is the same for every data set.
const std::vector<float>& projection() {
  static const std::vector<float> matrix = [] {
    Random random(0, Purpose::projection, {static_cast<std::uint64_t>(kProjected)});
    const double bound = std::sqrt(3.0 / static_cast<double>(kPixels));  // uniform numbers in [-bound, bound) have variance bound^2 / 3
    std::vector<float> values(kPixels * kProjected);
    for (float& value : values) value = static_cast<float>(random.uniform(-bound, bound));
    return values;
  }();
  return matrix;
}

// Shrinks the part of the image in `box` to a grid. A cell's value, in -1..1, is the mean of all pixels that the cell touches.
std::array<float, kPixels> thumbnail(const Image& image, const std::array<std::int64_t, 4>& box) {
  std::array<float, kPixels> out{};
  const auto [top, left, height, width] = box;
  for (std::int64_t i = 0; i < kGrid; ++i) {
    const std::int64_t first_row = top + i * height / kGrid;
    const std::int64_t end_row = std::max(first_row + 1, top + ((i + 1) * height + kGrid - 1) / kGrid);
    for (std::int64_t j = 0; j < kGrid; ++j) {
      const std::int64_t first_column = left + j * width / kGrid;
      const std::int64_t end_column = std::max(first_column + 1, left + ((j + 1) * width + kGrid - 1) / kGrid);
      std::array<std::int64_t, 3> sums{};
      for (std::int64_t row = first_row; row < end_row; ++row)
        for (std::int64_t column = first_column; column < end_column; ++column)
          for (std::size_t c = 0; c < 3; ++c)
            sums[c] += image.pixels[static_cast<std::size_t>(row * image.width + column) * 3 + c];
      const auto count = static_cast<double>((end_row - first_row) * (end_column - first_column));
      for (std::size_t c = 0; c < 3; ++c)
        out[static_cast<std::size_t>(i * kGrid + j) * 3 + c] =
            static_cast<float>(static_cast<double>(sums[c]) / count / 127.5 - 1);
    }
  }
  return out;
}

}  // namespace

void append_region(const Image& image, const std::array<std::int64_t, 4>& box, std::vector<float>& out) {
  const std::array<float, kPixels> pixels = thumbnail(image, box);
  const std::size_t start = out.size();
  out.resize(start + kProjected, 0.0F);
  const float* row = projection().data();
  for (std::size_t p = 0; p < kPixels; ++p, row += kProjected)
    for (std::size_t k = 0; k < kProjected; ++k) out[start + k] += pixels[p] * row[k];
  const auto [top, left, height, width] = box;
  const auto share = [](std::int64_t value, std::int64_t side) {
    return static_cast<float>(value) / static_cast<float>(side);
  };
  out.push_back(share(left, image.width));
  out.push_back(share(top, image.height));
  out.push_back(share(left + width, image.width));
  out.push_back(share(top + height, image.height));
}

}  // namespace tessera::shapes
