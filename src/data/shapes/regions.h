#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include <tessera/data/sample.h>

namespace tessera::shapes {

constexpr std::int64_t kRegionWidth = 2048 + 4;

/// Appends kRegionWidth values for the crop (top, left, height, width). The first 2,048 are a fixed random projection of the crop, averaged
/// to 8 x 8 x 3; the matrix entries are uniform and scaled so that a value's variance is the pixels' mean square. The last four are left,
/// top, right and bottom in 0..1.
void append_region(const Image& image, const std::array<std::int64_t, 4>& box, std::vector<float>& out);

}  // namespace tessera::shapes
