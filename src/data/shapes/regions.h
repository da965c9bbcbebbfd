#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include <tessera/data/sample.h>

namespace tessera::shapes {

constexpr std::int64_t kRegionWidth = 2048 + 4;

/// Appends kRegionWidth values: the crop (top, left, height, width), averaged to 8 x 8 x 3, through a fixed random
/// projection to 2,048 (entries uniform, so that a value's variance is the pixels' mean square), then left, top, right,
/// bottom in 0..1.
void append_region(const Image& image, const std::array<std::int64_t, 4>& box, std::vector<float>& out);

}  // namespace tessera::shapes
