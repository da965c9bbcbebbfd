#include <algorithm>
#include <array>
#include <cmath>

#include <c10/util/Exception.h>
#include <opencv2/imgcodecs.hpp>
#include <opencv2/imgproc.hpp>

#include "src/base/digest.h"
#include "src/report/html.h"
#include "src/report/markdown_table.h"
#include "src/report/picture.h"

namespace tessera::report {
namespace {

constexpr std::int64_t kSmall = 160;         // images whose longer side has at most this many pixels are stored as PNG
constexpr std::int64_t kGreatest = 320;      // maximum length of an image's longer side, in pixels; larger images are scaled down
constexpr std::int64_t kOutlineShare = 100;  // the width of an outline is the image's longer side divided by this number
constexpr double kFaded = 0.5;               // share of gray in pixels without a class
constexpr double kFill = 0.7, kEdge = 0.75;  // share of the class color in a region and in its outline
constexpr double kBase = 190,      // gray level under the color of a region
                 kTexture = 0.3;  // share of the image's contrast that stays visible in a region

/// Whether some pixel in the same row or column, at a distance of at most `reach`, has another mask value than the pixel at (row, column).
bool at_edge(const std::vector<std::uint8_t>& mask, const Image& image, std::int64_t row, std::int64_t column,
             std::int64_t reach) {
  const auto value = [&](std::int64_t r, std::int64_t c) {
    return mask[static_cast<std::size_t>(std::clamp<std::int64_t>(r, 0, image.height - 1) * image.width +
                                         std::clamp<std::int64_t>(c, 0, image.width - 1))];
  };
  const std::uint8_t own = value(row, column);
  for (std::int64_t far = 1; far <= reach; ++far)
    if (value(row - far, column) != own || value(row + far, column) != own || value(row, column - far) != own ||
        value(row, column + far) != own)
      return true;
  return false;
}

std::uint8_t mixed(double old, double color, double share) {
  return static_cast<std::uint8_t>((1 - share) * old + share * color + 0.5);
}

/// The colors of a heat map for the values 0, 1/3, 2/3 and 1.
constexpr std::array<Color, 4> kHeat = {{{255, 220, 90}, {253, 160, 60}, {240, 59, 32}, {128, 0, 38}}};

double heat_color(double value, std::size_t channel) {
  const double place = value * (kHeat.size() - 1);
  const std::size_t below = std::min(static_cast<std::size_t>(place), kHeat.size() - 2);
  return std::lerp(kHeat[below][channel], kHeat[below + 1][channel], place - static_cast<double>(below));
}

}  // namespace

Image heat_map(const Image& image, const std::vector<float>& values, std::int64_t rows, std::int64_t columns) {
  TORCH_CHECK(std::ssize(values) == rows * columns && !values.empty(), "heat_map: ", values.size(), " values for ",
              rows, " x ", columns, " patches");
  const cv::Mat patches(static_cast<int>(rows), static_cast<int>(columns), CV_32F, const_cast<float*>(values.data()));
  cv::Mat pixels;
  cv::resize(patches, pixels, {static_cast<int>(image.width), static_cast<int>(image.height)}, 0, 0, cv::INTER_LINEAR);
  const auto [low, high] = std::ranges::minmax(values);
  constexpr double kLightened = 0.5;             // share of white in the gray image
  constexpr double kLeast = 0.5, kMost = 0.85;  // how much the colors of small and of great values cover the image
  Image out = image;
  for (std::size_t i = 0; i < pixels.total(); ++i) {
    const double value = high > low ? (pixels.ptr<float>()[i] - low) / static_cast<double>(high - low) : 0;
    const std::uint8_t* old = &image.pixels[3 * i];
    const double gray = std::lerp(0.299 * old[0] + 0.587 * old[1] + 0.114 * old[2], 255.0, kLightened);
    const double cover = std::min(1.0, 8 * value) * std::lerp(kLeast, kMost, value);
    for (std::size_t c = 0; c < 3; ++c) out.pixels[3 * i + c] = mixed(gray, heat_color(value, c), cover);
  }
  return out;
}

std::string heat_scale(const std::vector<float>& values) {
  const auto [low, high] = std::ranges::minmax(values);
  std::string colors;
  for (const Color& color : kHeat) colors += "," + css_color(color);
  return concat("<div class=\"heat\"><span>", three_digits(low),
                "</span><i style=\"background:linear-gradient(to right,transparent", colors, ")\"></i><span>",
                three_digits(high), "</span></div>");
}

std::string data_uri(const Image& image) {
  TORCH_CHECK(!image.empty(), "data_uri: the image is empty");
  const cv::Mat rgb(static_cast<int>(image.height), static_cast<int>(image.width), CV_8UC3,
                    const_cast<std::uint8_t*>(image.pixels.data()));
  cv::Mat bgr;
  cv::cvtColor(rgb, bgr, cv::COLOR_RGB2BGR);
  const std::int64_t side = std::max(image.height, image.width);
  if (side > kGreatest) {
    const double factor = static_cast<double>(kGreatest) / static_cast<double>(side);
    cv::resize(bgr, bgr, {}, factor, factor, cv::INTER_AREA);
  }
  const bool small = side <= kSmall;
  std::vector<std::uint8_t> bytes;
  cv::imencode(small ? ".png" : ".jpg", bgr, bytes,
               small ? std::vector<int>{} : std::vector<int>{cv::IMWRITE_JPEG_QUALITY, 88});
  return std::string("data:image/") + (small ? "png" : "jpeg") + ";base64," +
         base64_encode({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

std::string img(const Image& image, const std::string& alt) {
  const bool tiny = std::max(image.height, image.width) <= 96;
  return "<img" + std::string(tiny ? " class=\"tiny\"" : "") + " src=\"" + data_uri(image) + "\" alt=\"" + escape(alt) +
         "\">";
}

Image color_by_class(const Image& image, const std::vector<std::uint8_t>& mask, std::int64_t background,
                     const std::vector<Color>& colors) {
  Image out = image;
  const std::int64_t reach = std::max<std::int64_t>(1, std::max(image.height, image.width) / kOutlineShare);
  for (std::size_t i = 0; i < mask.size(); ++i) {
    const std::uint8_t* old = &image.pixels[3 * i];
    std::uint8_t* now = &out.pixels[3 * i];
    if (mask[i] == 255 || mask[i] == background) {
      for (std::size_t c = 0; c < 3; ++c) now[c] = mixed(old[c], 128, kFaded);
      continue;
    }
    const Color color = mask[i] < colors.size() ? colors[mask[i]] : palette_color(mask[i]);
    const auto place = static_cast<std::int64_t>(i);
    const bool edge = at_edge(mask, image, place / image.width, place % image.width, reach);
    const double brightness = 0.299 * old[0] + 0.587 * old[1] + 0.114 * old[2];
    const double gray = kBase + kTexture * (brightness - kBase);
    for (std::size_t c = 0; c < 3; ++c) now[c] = edge ? mixed(0, color[c], kEdge) : mixed(gray, color[c], kFill);
  }
  return out;
}

}  // namespace tessera::report
