#pragma once

// The sampling rule of RoIAlign along one axis. All devices use it, and so does the float64 version
// (src/ops/roi_align.cpp).
#include <cmath>
#include <cstdint>

#include "kernels/types.h"

namespace tessera::kernels {
namespace {  // each source file has its own copy, because source files are compiled for different instruction sets

/// The range of cells that have a weight. It is empty if begin == end.
struct CellRange {
  std::int32_t begin = 0, end = 0;
};

/// Distributes the weight `share` of one point, at position `at` of an axis, among the cells next to it. The axis has
/// `size` cells, whose centers are at 0, 1, ...
template <class Number>
TESSERA_HOST_DEVICE inline void add_point(Number at, Number share, std::int64_t size, Number* weights,
                                          CellRange& cells) {
  if (!(at >= -1 && at <= static_cast<Number>(size))) return;
  const Number inside = at > 0 ? at : 0;
  std::int32_t low = static_cast<std::int32_t>(inside);
  Number beyond = inside - static_cast<Number>(low);
  if (low >= size - 1) {
    low = static_cast<std::int32_t>(size - 1);
    beyond = 0;
  }
  const std::int32_t high = low + (low < size - 1 ? 1 : 0);
  weights[low] += (1 - beyond) * share;
  weights[high] += beyond * share;
  if (cells.begin == cells.end) cells = {low, low};
  if (low < cells.begin) cells.begin = low;
  if (high + 1 > cells.end) cells.end = high + 1;
}

/// Computes how much each of the `size` cells of an axis contributes to one bin of a box. Along the axis, the box
/// extends from `from` to `to` and is divided into `bins` bins; `bin` is the index of the bin. Writes the weights to
/// `weights` [size], and returns the range of cells that have a weight. Skips points outside of the map, so that a large
/// box does not take longer.
template <class Number>
TESSERA_HOST_DEVICE inline CellRange axis_weights(Number from, Number to, std::int64_t bin, std::int64_t bins,
                                                  std::int64_t sampling_ratio, bool aligned, std::int64_t size,
                                                  Number* weights) {
  const Number start = from - (aligned ? Number(0.5) : Number(0));
  Number length = to - (aligned ? Number(0.5) : Number(0)) - start;
  const bool finite = length - length == 0 && start - start == 0;
  for (std::int64_t cell = 0; cell < size; ++cell) weights[cell] = finite ? Number(0) : Number(NAN);
  CellRange cells;
  if (!finite) {
    cells.end = static_cast<std::int32_t>(size);
    return cells;
  }
  if (!aligned && length < 1) length = 1;
  const Number bin_length = length / static_cast<Number>(bins);
  const Number points = sampling_ratio > 0 ? static_cast<Number>(sampling_ratio) : std::ceil(bin_length);
  if (!(points > 0)) return cells;
  const Number origin = start + static_cast<Number>(bin) * bin_length, step = bin_length / points;
  // Limits the loop to the points with -1 <= origin + (i + 1/2) step <= size, plus a margin of two points on each side for rounding errors.
  // A box that is reversed or has no length (step <= 0) has only sampling_ratio points, so the loop visits all its points.
  Number first = 0, last = points - 1;
  if (step > 0) {
    const Number begin = std::floor((-1 - origin) / step) - 2;
    const Number end = std::ceil((static_cast<Number>(size) - origin) / step) + 2;
    first = begin > first ? begin : first;
    last = end < last ? end : last;
  }
  const std::int64_t visited = last >= first ? static_cast<std::int64_t>(last - first) + 1 : 0;
  for (std::int64_t i = 0; i < visited; ++i) {
    const Number point = first + static_cast<Number>(i) + Number(0.5);
    add_point(origin + point * bin_length / points, 1 / points, size, weights, cells);
  }
  return cells;
}

}  // namespace
}  // namespace tessera::kernels
