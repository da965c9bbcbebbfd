#pragma once

#include <cstdint>
#include <string>

#include <tessera/data/sample.h>

namespace tessera {

/// Part of an interleaved RGB picture that lives elsewhere; `stride` is bytes from one row to the next.
struct PixelView {
  const std::uint8_t* data = nullptr;
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::int64_t stride = 0;
};

enum class Filter { bicubic, bilinear };

/// By its name in Preprocessing.
Filter filter_named(const std::string& name);

/// The part of the resized picture that is wanted.
struct OutputWindow {
  std::int64_t top = 0;
  std::int64_t left = 0;
  std::int64_t height = 0;
  std::int64_t width = 0;
};

/// A part of a view; its edges may lie between pixels, whose whole then counts as inside.
struct SourceBox {
  double top = 0;
  double left = 0;
  double height = 0;
  double width = 0;
};

/// Antialiased resampling to height x width in 8 bits, two passes, bit for bit Pillow 13's. Pixels outside the view do
/// not exist and are never read. Only the window is computed, so that neither time nor memory grows with what a crop
/// throws away.
Image resample(const PixelView& view, std::int64_t height, std::int64_t width, Filter filter,
               const OutputWindow& window);

/// The whole resized picture.
Image resample(const PixelView& view, std::int64_t height, std::int64_t width, Filter filter);

/// The box resized to height x width, interleaved, at `out`; `mirrored` turns left and right. A box of whole pixels is
/// resampled as the view of these pixels would be.
void resample_box(const PixelView& view, const SourceBox& box, std::int64_t height, std::int64_t width, Filter filter,
                  bool mirrored, std::uint8_t* out);

}  // namespace tessera
