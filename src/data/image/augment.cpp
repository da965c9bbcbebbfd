#include "src/data/image/augment.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <vector>

namespace tessera {
namespace {

using Table = std::array<std::uint8_t, 256>;
using Histogram = std::array<std::int64_t, 256>;

template <class Level>
Table table_of(Level level) {
  Table table{};
  for (int i = 0; i < 256; ++i) table[static_cast<std::size_t>(i)] = static_cast<std::uint8_t>(level(i));
  return table;
}

void apply_table(Image& image, const Table& table) {
  for (std::uint8_t& value : image.pixels) value = table[value];
}

// Maps each channel with the table that `make` returns for the channel's histogram.
template <class Make>
void apply_by_histogram(Image& image, Make make) {
  std::array<Histogram, 3> histograms{};
  for (std::size_t i = 0; i < image.pixels.size(); ++i) ++histograms[i % 3][image.pixels[i]];
  const std::array<Table, 3> tables = {make(histograms[0]), make(histograms[1]), make(histograms[2])};
  for (std::size_t i = 0; i < image.pixels.size(); ++i) image.pixels[i] = tables[i % 3][image.pixels[i]];
}

/// Returns the gray level of a pixel as Pillow's conversion to L does: ITU-R 601 with 16-bit weights.
std::uint8_t grey_of(const std::uint8_t* pixel) {
  return static_cast<std::uint8_t>((pixel[0] * 19595 + pixel[1] * 38470 + pixel[2] * 7471 + 0x8000) >> 16);
}

/// Pillow's Image.blend: interpolates between two levels, and extrapolates if `share` is outside [0, 1].
std::uint8_t blend(int from, int to, float share) {
  const float level = static_cast<float>(from) + share * static_cast<float>(to - from);
  return static_cast<std::uint8_t>(std::clamp(level, 0.0F, 255.0F));
}

// Blends with an image of one constant level.
void blend_with_level(Image& image, int level, double factor) {
  apply_table(image, table_of([&](int value) { return blend(level, value, static_cast<float>(factor)); }));
}

struct Hsv {
  std::uint8_t hue, saturation, value;
};

// Mixes float and double as Pillow does, because the mixture affects the last bits of some results.
Hsv to_hsv(const std::uint8_t* rgb) {
  const int high = std::max({rgb[0], rgb[1], rgb[2]});
  const int low = std::min({rgb[0], rgb[1], rgb[2]});
  if (high == low) return {0, 0, static_cast<std::uint8_t>(high)};
  const auto range = static_cast<float>(high - low);
  const float saturation = range / static_cast<float>(high);
  const float red = static_cast<float>(high - rgb[0]) / range;
  const float green = static_cast<float>(high - rgb[1]) / range;
  const float blue = static_cast<float>(high - rgb[2]) / range;
  float hue = 0;
  if (rgb[0] == high)
    hue = blue - green;
  else if (rgb[1] == high)
    hue = static_cast<float>(2.0 + static_cast<double>(red) - static_cast<double>(blue));
  else
    hue = static_cast<float>(4.0 + static_cast<double>(green) - static_cast<double>(red));
  hue = static_cast<float>(std::fmod(static_cast<double>(hue) / 6.0 + 1.0, 1.0));
  return {static_cast<std::uint8_t>(static_cast<double>(hue) * 255.0),
          static_cast<std::uint8_t>(static_cast<double>(saturation) * 255.0), static_cast<std::uint8_t>(high)};
}

void from_hsv(const Hsv& hsv, std::uint8_t* rgb) {
  if (hsv.saturation == 0) {
    std::fill_n(rgb, 3, hsv.value);
    return;
  }
  const float turn = static_cast<float>(hsv.hue * 6.0 / 255.0);
  const float saturation = static_cast<float>(hsv.saturation / 255.0);
  const auto sector = static_cast<int>(std::floor(turn));
  const float rest = turn - static_cast<float>(sector);
  const double value = hsv.value;
  const auto level = [&](double share) {
    return static_cast<std::uint8_t>(
        std::clamp(std::round(value * (1.0 - static_cast<double>(saturation) * share)), 0.0, 255.0));
  };
  const std::uint8_t p = level(1.0), q = level(static_cast<double>(rest)), t = level(1.0 - static_cast<double>(rest));
  const std::uint8_t v = hsv.value;
  const std::array<std::array<std::uint8_t, 3>, 6> sectors = {
      {{v, t, p}, {q, v, p}, {p, v, t}, {p, q, v}, {t, p, v}, {v, p, q}}};
  std::copy_n(sectors[static_cast<std::size_t>(sector % 6)].begin(), 3, rgb);
}

/// A box filter of 2 radius + 1 pixels, where the radius need not be an integer. The weights are 24-bit fractions.
struct BoxKernel {
  std::int64_t radius = 0;  // on each side of the center, the number of pixels that are completely inside the box
  std::uint32_t inner = 0, outer = 0;
};

// Returns the box that approximates a Gaussian when applied three times (Gwosdek et al., Theoretical foundations of Gaussian
// convolution by extended box filtering, 2011).
BoxKernel box_of(double sigma) {
  constexpr float passes = 3;
  const auto given = static_cast<float>(sigma);
  const float variance = given * given / passes;
  const auto length = static_cast<float>(std::sqrt(12.0 * static_cast<double>(variance) + 1.0));
  const auto whole = static_cast<float>(std::floor((static_cast<double>(length) - 1.0) / 2.0));
  float part = (2 * whole + 1) * (whole * (whole + 1) - 3 * variance);
  part /= 6 * (variance - (whole + 1) * (whole + 1));
  const float radius = whole + part;
  BoxKernel kernel{static_cast<std::int64_t>(radius)};
  kernel.inner = static_cast<std::uint32_t>(static_cast<float>(1 << 24) / (radius * 2 + 1));
  kernel.outer = ((1 << 24) - static_cast<std::uint32_t>(kernel.radius * 2 + 1) * kernel.inner) / 2;
  return kernel;
}

// Blurs a line of pixels once. The pixels are `step` bytes apart; the first and the last pixel are repeated beyond the ends.
void blur_line(std::uint8_t* line, std::int64_t count, std::int64_t step, const BoxKernel& kernel,
               std::vector<std::uint8_t>& padded) {
  const std::int64_t margin = kernel.radius + 1;
  padded.resize(static_cast<std::size_t>(count + 2 * margin));
  for (std::int64_t i = 0; i < std::ssize(padded); ++i)
    padded[static_cast<std::size_t>(i)] = line[std::clamp<std::int64_t>(i - margin, 0, count - 1) * step];
  const std::uint8_t* in = padded.data() + margin;
  std::uint32_t sum = 0;
  for (std::int64_t i = -kernel.radius; i <= kernel.radius; ++i) sum += in[i];
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint32_t edges = in[i - margin] + in[i + margin];
    line[i * step] = static_cast<std::uint8_t>((sum * kernel.inner + edges * kernel.outer + (1 << 23)) >> 24);
    sum += in[i + margin];
    sum -= in[i - kernel.radius];
  }
}

}  // namespace

void adjust_brightness(Image& image, double factor) {
  blend_with_level(image, 0, factor);
}

void adjust_contrast(Image& image, double factor) {
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < image.pixels.size(); i += 3) sum += grey_of(image.pixels.data() + i);
  const double mean = static_cast<double>(sum) / static_cast<double>(image.pixels.size() / 3);
  blend_with_level(image, static_cast<int>(mean + 0.5), factor);
}

void adjust_saturation(Image& image, double factor) {
  const auto share = static_cast<float>(factor);
  for (std::size_t i = 0; i < image.pixels.size(); i += 3) {
    std::uint8_t* pixel = image.pixels.data() + i;
    const int grey = grey_of(pixel);
    for (std::size_t c = 0; c < 3; ++c) pixel[c] = blend(grey, pixel[c], share);
  }
}

void adjust_sharpness(Image& image, double factor) {
  const auto share = static_cast<float>(factor);
  const Image in = image;
  const std::int64_t stride = 3 * image.width;
  // Border pixels stay as they are, because Pillow's blur does not change them.
  for (std::int64_t y = 1; y + 1 < image.height; ++y)
    for (std::int64_t i = y * stride + 3; i < (y + 1) * stride - 3; ++i) {
      const std::uint8_t* at = in.pixels.data() + i;
      int sum = 4 * at[0];
      for (const std::int64_t row : {-stride, std::int64_t{0}, stride}) sum += at[row - 3] + at[row] + at[row + 3];
      image.pixels[static_cast<std::size_t>(i)] = blend((2 * sum + 13) / 26, at[0], share);
    }
}

void adjust_hue(Image& image, double shift) {
  const auto steps = static_cast<std::uint8_t>(static_cast<int>(shift * 255));
  for (std::size_t i = 0; i < image.pixels.size(); i += 3) {
    Hsv hsv = to_hsv(image.pixels.data() + i);
    hsv.hue = static_cast<std::uint8_t>(hsv.hue + steps);
    from_hsv(hsv, image.pixels.data() + i);
  }
}

void to_grayscale(Image& image) {
  for (std::size_t i = 0; i < image.pixels.size(); i += 3)
    std::fill_n(image.pixels.data() + i, 3, grey_of(image.pixels.data() + i));
}

void solarize(Image& image, double threshold) {
  apply_table(image, table_of([&](int value) { return value < threshold ? value : 255 - value; }));
}

void posterize(Image& image, int bits) {
  const int mask = ~((1 << (8 - bits)) - 1);
  apply_table(image, table_of([&](int value) { return value & mask; }));
}

void invert(Image& image) {
  apply_table(image, table_of([](int value) { return 255 - value; }));
}

void autocontrast(Image& image) {
  apply_by_histogram(image, [](const Histogram& histogram) {
    int low = 0, high = 255;
    while (low < 255 && histogram[static_cast<std::size_t>(low)] == 0) ++low;
    while (high > 0 && histogram[static_cast<std::size_t>(high)] == 0) --high;
    const double scale = high > low ? 255.0 / (high - low) : 1.0;
    const double offset = high > low ? -low * scale : 0.0;
    return table_of([&](int value) { return std::clamp(static_cast<int>(value * scale + offset), 0, 255); });
  });
}

void equalize(Image& image) {
  apply_by_histogram(image, [&](const Histogram& histogram) {
    const auto last = std::find_if(histogram.rbegin(), histogram.rend(), [](std::int64_t n) { return n > 0; });
    const std::int64_t step = (image.height * image.width - *last) / 255;
    std::int64_t sum = step / 2;
    return table_of([&](int value) {
      if (step == 0) return std::int64_t{value};
      const std::int64_t level = sum / step;
      sum += histogram[static_cast<std::size_t>(value)];
      return std::min<std::int64_t>(level, 255);
    });
  });
}

void gaussian_blur(Image& image, double radius) {
  if (!(radius > 0)) return;
  const BoxKernel kernel = box_of(radius);
  std::vector<std::uint8_t> padded;
  const std::int64_t stride = 3 * image.width;
  for (std::int64_t y = 0; y < image.height; ++y)
    for (std::int64_t c = 0; c < 3; ++c)
      for (int pass = 0; pass < 3; ++pass)
        blur_line(image.pixels.data() + y * stride + c, image.width, 3, kernel, padded);
  for (std::int64_t x = 0; x < stride; ++x)
    for (int pass = 0; pass < 3; ++pass) blur_line(image.pixels.data() + x, image.height, stride, kernel, padded);
}

void affine(Image& image, const std::array<double, 6>& matrix) {
  // Positions are in 16.16 fixed point and refer to the pixels' centers.
  const auto fixed = [](double value) { return static_cast<std::int64_t>(std::floor(value * 65536.0 + 0.5)); };
  const std::int64_t right_x = fixed(matrix[0]), down_x = fixed(matrix[1]);
  const std::int64_t right_y = fixed(matrix[3]), down_y = fixed(matrix[4]);
  const std::int64_t first_x = fixed(matrix[2] + matrix[0] * 0.5 + matrix[1] * 0.5);
  const std::int64_t first_y = fixed(matrix[5] + matrix[3] * 0.5 + matrix[4] * 0.5);
  const Image in = image;
  for (std::int64_t y = 0; y < image.height; ++y)
    for (std::int64_t x = 0; x < image.width; ++x) {
      const std::int64_t from_x = (first_x + x * right_x + y * down_x) >> 16;
      const std::int64_t from_y = (first_y + x * right_y + y * down_y) >> 16;
      std::uint8_t* out = image.pixels.data() + 3 * (y * image.width + x);
      if (from_x < 0 || from_y < 0 || from_x >= image.width || from_y >= image.height)
        std::fill_n(out, 3, std::uint8_t{0});
      else
        std::copy_n(in.pixels.data() + 3 * (from_y * image.width + from_x), 3, out);
    }
}

void rotate(Image& image, double degrees) {
  if (degrees == 0) return;
  // Pillow rounds sines and cosines to 15 digits.
  const auto rounded = [](double value) { return std::nearbyint(value * 1e15) / 1e15; };
  const double angle = -degrees * std::numbers::pi / 180.0;
  const double cosine = rounded(std::cos(angle)), sine = rounded(std::sin(angle));
  const double x = static_cast<double>(image.width) / 2.0, y = static_cast<double>(image.height) / 2.0;
  affine(image, {cosine, sine, x - cosine * x - sine * y, -sine, cosine, y + sine * x - cosine * y});
}

}  // namespace tessera
