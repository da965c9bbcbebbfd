#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include <tessera/data/sample.h>

namespace tessera::shapes {

constexpr std::int64_t kRegionWidth = 2048 + 4;

/// Appends kRegionWidth values for the crop (top, left, height, width). To get the first 2,048, averages the crop to 8 x 8 x 3 and applies
/// a fixed random projection. The entries of the projection's matrix are uniform random numbers, scaled so that the variance of each of the
/// 2,048 values is the mean square of the averaged pixels. The last four values are left, top, right and bottom in 0..1.
void append_region(const Image& image, const std::array<std::int64_t, 4>& box, std::vector<float>& out);

}  // namespace tessera::shapes
