#include "src/data/resample.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "src/data/resample_loops.h"

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

Weights make_weights(std::int64_t n_in, std::int64_t n_out, Range range, Filter filter) {
  const double scale = static_cast<double>(n_in) / static_cast<double>(n_out);
  const double stretch = std::max(scale, 1.0);
  const double support = stretch * (filter == Filter::bicubic ? 2.0 : 1.0);
  const double inverse = 1.0 / stretch;  // Pillow multiplies; dividing rounds differently
  Weights w;
  w.outputs = range.count;
  w.taps = static_cast<std::int64_t>(std::ceil(support)) * 2 + 2;
  w.first.resize(static_cast<std::size_t>(range.count));
  w.count.resize(static_cast<std::size_t>(range.count));
  w.values.assign(static_cast<std::size_t>(range.count * w.taps), 0);
  std::vector<double> row(static_cast<std::size_t>(w.taps));
  for (std::int64_t i = 0; i < range.count; ++i) {
    const double centre = (static_cast<double>(range.begin + i) + 0.5) * scale;
    const auto lo = std::max<std::int64_t>(static_cast<std::int64_t>(centre - support + 0.5), 0);
    const auto hi = std::min<std::int64_t>(static_cast<std::int64_t>(centre + support + 0.5), n_in);
    double sum = 0;
    for (std::int64_t j = lo; j < hi; ++j) {
      const double x = (static_cast<double>(j) - centre + 0.5) * inverse;
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
  w.steps = (*std::max_element(w.count.begin(), w.count.end()) + 1) / 2 * 2;
  return w;
}

Image blank(std::int64_t height, std::int64_t width) {
  return {height, width, std::vector<std::uint8_t>(static_cast<std::size_t>(height * width * 3))};
}

Image resample_width(const PixelView& view, const Weights& w, const ResampleLoops& loops) {
  Image out = blank(view.height, w.outputs);
  // The vector loop goes a few bytes too far at the end of a row: rows pass through buffers with room for it.
  std::vector<std::uint8_t> in_row(static_cast<std::size_t>(view.width * 3 + ResampleLoops::slack(w)));
  std::vector<std::uint8_t> out_row(static_cast<std::size_t>(w.outputs * 3 + 1));
  const auto used = static_cast<std::size_t>((w.end() - w.begin()) * 3);
  for (std::int64_t y = 0; y < view.height; ++y) {
    std::memcpy(in_row.data() + w.begin() * 3, view.data + y * view.stride + w.begin() * 3, used);
    loops.across(in_row.data(), out_row.data(), w);
    std::memcpy(out.pixels.data() + y * w.outputs * 3, out_row.data(), static_cast<std::size_t>(w.outputs * 3));
  }
  return out;
}

Image resample_height(const PixelView& view, const Weights& w, const ResampleLoops& loops) {
  Image out = blank(w.outputs, view.width);
  for (std::int64_t y = 0; y < w.outputs; ++y) {
    const auto i = static_cast<std::size_t>(y);
    loops.down(view.data + w.first[i] * view.stride, view.stride, out.pixels.data() + y * view.width * 3,
               view.width * 3, w.values.data() + y * w.taps, w.count[i]);
  }
  return out;
}

Image copy(const PixelView& view) {
  Image out = blank(view.height, view.width);
  for (std::int64_t y = 0; y < view.height; ++y)
    std::memcpy(out.pixels.data() + y * view.width * 3, view.data + y * view.stride,
                static_cast<std::size_t>(view.width * 3));
  return out;
}

PixelView view_of(const Image& image) {
  return {image.pixels.data(), image.height, image.width, image.width * 3};
}

PixelView part(const PixelView& view, Range rows, Range columns) {
  return {view.data + rows.begin * view.stride + columns.begin * 3, rows.count, columns.count, view.stride};
}

Range all(std::int64_t count) {
  return {0, count};
}

}  // namespace

Image resample(const PixelView& view, std::int64_t height, std::int64_t width, Filter filter,
               const OutputWindow& window) {
  static const ResampleLoops loops = choose_resample_loops();
  const Range rows{window.top, window.height};
  const Range columns{window.left, window.width};
  const bool change_height = view.height != height;
  const bool change_width = view.width != width;
  if (!change_height && !change_width) return copy(part(view, rows, columns));
  if (!change_height)
    return resample_width(part(view, rows, all(view.width)), make_weights(view.width, width, columns, filter), loops);
  if (!change_width)
    return resample_height(part(view, all(view.height), columns), make_weights(view.height, height, rows, filter),
                           loops);

  Weights down = make_weights(view.height, height, rows, filter);
  Weights across = make_weights(view.width, width, columns, filter);
  const Range used_rows{down.begin(), down.end() - down.begin()};
  const Range used_columns{across.begin(), across.end() - across.begin()};
  const PixelView used = part(view, used_rows, used_columns);
  down.shift(used_rows.begin);
  across.shift(used_columns.begin);
  const std::int64_t removed = view.height - height;
  // Pillow >= 13: tall pictures lose their rows first, which is cheaper.
  if (removed > 0 && removed > 2 * (view.width - width))
    return resample_width(view_of(resample_height(used, down, loops)), across, loops);
  return resample_height(view_of(resample_width(used, across, loops)), down, loops);
}

Image resample(const PixelView& view, std::int64_t height, std::int64_t width, Filter filter) {
  return resample(view, height, width, filter, {0, 0, height, width});
}

}  // namespace tessera
