#pragma once

// Reads and writes two adjacent columns at a time if the width and the address allow it.
#include "kernels/device/primitives.h"

namespace tessera::kernels {
namespace {

template <class Element>
using Pair = Piece<Element, 2>;

/// Returns true if columns c and c + 1 can be read as one word in every row and for every even c. The rows have `width`
/// elements each and begin at `data`.
template <class Element>
bool rows_of_pairs(const void* data, std::int64_t width) {
  return width % 2 == 0 && reinterpret_cast<std::uintptr_t>(data) % sizeof(Pair<Element>) == 0;
}

/// Returns the values in `column` and column + 1, or 0 for a column that is not below `width`. `paired` may be true only if rows_of_pairs()
/// is true and `column` is even.
template <class Element>
__device__ __forceinline__ float2 load_pair(const Element* row, int column, int width, bool paired) {
  float2 values = {0.0f, 0.0f};
  if (paired) {
    if (column >= width) return values;
    const Pair<Element> pair = word_at<Pair<Element>>(row + column);
    values.x = to_float(pair.values[0]);
    values.y = to_float(pair.values[1]);
  } else {
    if (column < width) values.x = to_float(row[column]);
    if (column + 1 < width) values.y = to_float(row[column + 1]);
  }
  return values;
}

/// Stores `first` in `column` and `second` in column + 1. A value whose column is not below `width` is dropped. If both columns exist and
/// the address is aligned for a pair, writes one word.
template <class Element>
__device__ __forceinline__ void store_pair(Element* row, int column, int width, float first, float second) {
  Element* const to = row + column;
  if (column + 1 < width && reinterpret_cast<std::uintptr_t>(to) % sizeof(Pair<Element>) == 0) {
    word_at<Pair<Element>>(to) = Pair<Element>{{from_float<Element>(first), from_float<Element>(second)}};
    return;
  }
  if (column < width) to[0] = from_float<Element>(first);
  if (column + 1 < width) to[1] = from_float<Element>(second);
}

}  // namespace
}  // namespace tessera::kernels
