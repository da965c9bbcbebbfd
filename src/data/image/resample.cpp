#include "src/data/image/resample.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "src/data/image/resample_loops.h"

namespace tessera {
namespace {

using Weights = ResampleWeights;

// Output positions [begin, begin + count) of an axis.
struct Range {
  std::int64_t begin = 0;
  std::int64_t count = 0;
};

double bicubic(double x) {
  constexpr double a = -0.5;
  x = std::abs(x);
  if (x < 1.0) return ((a + 2.0) * x - (a + 3.0)) * x * x + 1;
  if (x < 2.0) return (((x - 5) * x + 8) * x - 4) * a;
  return 0.0;
}

double bilinear(double x) {
  x = std::abs(x);
  return x < 1.0 ? 1.0 - x : 0.0;
}

// The input along an axis: it has `inputs` pixels, and the range [origin, origin + length) of them is resized.
struct Axis {
  std::int64_t inputs = 0;
  double origin = 0;
  double length = 0;
};

void make_weights(const Axis& axis, std::int64_t n_out, Range range, Filter filter, Weights& w) {
  const double scale = axis.length / static_cast<double>(n_out);
  const double stretch = std::max(scale, 1.0);
  const double support = stretch * (filter == Filter::bicubic ? 2.0 : 1.0);
  const double inverse = 1.0 / stretch;  // Pillow multiplies; dividing rounds differently
  w.outputs = range.count;
  w.taps = (static_cast<std::int64_t>(2.0 * support) + 4) / 4 * 4;  // at most 2 * support + 1 inputs contribute
  w.first.resize(static_cast<std::size_t>(range.count));
  w.count.resize(static_cast<std::size_t>(range.count));
  w.values.assign(static_cast<std::size_t>(range.count * w.taps), 0);
  std::vector<double> row(static_cast<std::size_t>(w.taps));
  for (std::int64_t i = 0; i < range.count; ++i) {
    const double center = axis.origin + (static_cast<double>(range.begin + i) + 0.5) * scale;
    const auto lo = std::max<std::int64_t>(static_cast<std::int64_t>(center - support + 0.5), 0);
    const auto hi = std::min<std::int64_t>(static_cast<std::int64_t>(center + support + 0.5), axis.inputs);
    double sum = 0;
    for (std::int64_t j = lo; j < hi; ++j) {
      const double x = (static_cast<double>(j) - center + 0.5) * inverse;
      const double value = filter == Filter::bicubic ? bicubic(x) : bilinear(x);
      row[static_cast<std::size_t>(j - lo)] = value;
      sum += value;
    }
    w.first[static_cast<std::size_t>(i)] = lo;
    w.count[static_cast<std::size_t>(i)] = hi - lo;
    for (std::int64_t j = 0; j < hi - lo; ++j) {
      const double value = (sum != 0 ? row[static_cast<std::size_t>(j)] / sum : row[static_cast<std::size_t>(j)]) *
                           static_cast<double>(1 << Weights::precision);
      w.values[static_cast<std::size_t>(i * w.taps + j)] =
          static_cast<std::int32_t>(value < 0 ? value - 0.5 : value + 0.5);
    }
  }
}

// Where to write the interleaved rows.
struct Target {
  std::uint8_t* data = nullptr;
  std::int64_t stride = 0;
};

/// Memory that a thread reuses from one image to the next.
struct Scratch {
  Weights across, down;
  std::vector<std::uint8_t> in_row, out_row, between;
};

// The vector loop reads and writes a few bytes past the end of a row, so rows are copied through buffers with room for that.
void resample_width(const PixelView& view, const Weights& w, const Target& out, Scratch& scratch) {
  const auto slack = static_cast<std::size_t>(ResampleLoops::slack(w));
  scratch.in_row.resize(static_cast<std::size_t>(view.width * 3) + slack);
  scratch.out_row.resize(static_cast<std::size_t>(w.outputs * 3) + slack);
  const auto used = static_cast<std::size_t>((w.end() - w.begin()) * 3);
  for (std::int64_t y = 0; y < view.height; ++y) {
    std::memcpy(scratch.in_row.data() + w.begin() * 3, view.data + y * view.stride + w.begin() * 3, used);
    resample_loops().across(scratch.in_row.data(), scratch.out_row.data(), w);
    std::memcpy(out.data + y * out.stride, scratch.out_row.data(), static_cast<std::size_t>(w.outputs * 3));
  }
}

void resample_height(const PixelView& view, const Weights& w, const Target& out) {
  for (std::int64_t y = 0; y < w.outputs; ++y)
    resample_loops().down(view.data + w.first[static_cast<std::size_t>(y)] * view.stride, view.stride,
                          out.data + y * out.stride, view.width * 3, w, y);
}

void copy(const PixelView& view, const Target& out) {
  for (std::int64_t y = 0; y < view.height; ++y)
    std::memcpy(out.data + y * out.stride, view.data + y * view.stride, static_cast<std::size_t>(view.width * 3));
}

PixelView part(const PixelView& view, Range rows, Range columns) {
  return {view.data + rows.begin * view.stride + columns.begin * 3, rows.count, columns.count, view.stride};
}

Range all(std::int64_t count) {
  return {0, count};
}

bool same(const Axis& axis, std::int64_t n_out) {
  return axis.length == static_cast<double>(n_out) && axis.origin == 0;
}

// `vertical` and `horizontal` specify the part of `view` to resize.
void resample(const PixelView& view, const Axis& vertical, const Axis& horizontal, std::int64_t height,
              std::int64_t width, Filter filter, const Box& window, bool mirrored, const Target& out) {
  thread_local Scratch scratch;
  const Range rows{window[0], window[2]}, columns{window[1], window[3]};
  Weights& down = scratch.down;
  Weights& across = scratch.across;
  if (!same(vertical, height)) {
    make_weights(vertical, height, rows, filter, down);
    down.split();
  }
  if (!same(horizontal, width)) {
    make_weights(horizontal, width, columns, filter, across);
    if (mirrored) across.mirror();
    across.split();
  } else {
    const PixelView used = part(view, all(view.height), columns);
    if (same(vertical, height))
      copy(part(used, rows, all(used.width)), out);
    else
      resample_height(used, down, out);
    if (mirrored) mirror_rows(out.data, rows.count, columns.count, out.stride);
    return;
  }
  if (same(vertical, height)) return resample_width(part(view, rows, all(view.width)), across, out, scratch);

  const Range used_rows{down.begin(), down.end() - down.begin()};
  const Range used_columns{across.begin(), across.end() - across.begin()};
  const PixelView used = part(view, used_rows, used_columns);
  down.shift(used_rows.begin);
  across.shift(used_columns.begin);
  const double removed = vertical.length - static_cast<double>(height);
  // Pillow 13 and later reduce the height of tall images first, which is cheaper.
  const bool height_first = removed > 0 && removed > 2 * (horizontal.length - static_cast<double>(width));
  const Range between = height_first ? Range{down.outputs, used.width} : Range{used.height, across.outputs};
  scratch.between.resize(static_cast<std::size_t>(between.begin * between.count * 3));
  const Target middle{scratch.between.data(), between.count * 3};
  const PixelView middle_view{middle.data, between.begin, between.count, middle.stride};
  if (height_first) {
    resample_height(used, down, middle);
    resample_width(middle_view, across, out, scratch);
  } else {
    resample_width(used, across, middle, scratch);
    resample_height(middle_view, down, out);
  }
}

Axis whole_axis(std::int64_t length) {
  return {length, 0, static_cast<double>(length)};
}

// Returns the range of pixels that [begin, begin + length) touches, in a row or column of `inputs` pixels.
Range touched(double begin, double length, std::int64_t inputs) {
  const auto first = std::clamp<std::int64_t>(static_cast<std::int64_t>(std::floor(begin)), 0, inputs - 1);
  const auto last = std::clamp<std::int64_t>(static_cast<std::int64_t>(std::ceil(begin + length)), first + 1, inputs);
  return {first, last - first};
}

}  // namespace

void mirror_rows(std::uint8_t* pixels, std::int64_t height, std::int64_t width, std::int64_t stride) {
  for (std::int64_t y = 0; y < height; ++y) {
    std::uint8_t* row = pixels + y * stride;
    for (std::int64_t a = 0, b = width - 1; a < b; ++a, --b) std::swap_ranges(row + 3 * a, row + 3 * a + 3, row + 3 * b);
  }
}

Image resample(const PixelView& view, std::int64_t height, std::int64_t width, Filter filter, const Box& window) {
  Image out{window[2], window[3], std::vector<std::uint8_t>(static_cast<std::size_t>(window[2] * window[3] * 3))};
  resample(view, whole_axis(view.height), whole_axis(view.width), height, width, filter, window, false,
           {out.pixels.data(), window[3] * 3});
  return out;
}

Image resample(const PixelView& view, std::int64_t height, std::int64_t width, Filter filter) {
  return resample(view, height, width, filter, {0, 0, height, width});
}

void resample_box(const PixelView& view, const SourceBox& box, std::int64_t height, std::int64_t width, Filter filter,
                  bool mirrored, std::uint8_t* out) {
  const Range rows = touched(box.top, box.height, view.height);
  const Range columns = touched(box.left, box.width, view.width);
  resample(part(view, rows, columns), {rows.count, box.top - static_cast<double>(rows.begin), box.height},
           {columns.count, box.left - static_cast<double>(columns.begin), box.width}, height, width, filter,
           {0, 0, height, width}, mirrored, {out, width * 3});
}

}  // namespace tessera
