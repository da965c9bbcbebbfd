#include "src/report/cards.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include <c10/util/Exception.h>
#include <opencv2/imgcodecs.hpp>
#include <opencv2/imgproc.hpp>

#include "src/base/digest.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>

namespace tessera::report {
namespace {

constexpr std::int64_t kSmall = 160;     // images whose longer side has at most this many pixels are stored as PNG
constexpr std::int64_t kGreatest = 320;  // maximum length of an image's longer side, in pixels; larger images are scaled down

std::string encoded(const cv::Mat& pixels, const char* type, const std::vector<int>& settings = {}) {
  std::vector<std::uint8_t> bytes;
  cv::imencode(std::string(".") + type, pixels, bytes, settings);
  return concat("data:image/", type, ";base64,", base64_encode({reinterpret_cast<const char*>(bytes.data()), bytes.size()}));
}

/// Returns the value with four significant digits, so that its text is short.
double short_value(float value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4g", static_cast<double>(value));
  return std::strtod(text, nullptr);
}

}  // namespace

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
  return side <= kSmall ? encoded(bgr, "png") : encoded(bgr, "jpeg", {cv::IMWRITE_JPEG_QUALITY, 88});
}

nlohmann::json image_part(const Image& image, const std::string& name, const std::string& caption) {
  nlohmann::json out = {{"src", data_uri(image)}};
  if (!name.empty()) out["name"] = name;
  if (!caption.empty()) out["caption"] = caption;
  return out;
}

nlohmann::json heat_part(const Image& image, const std::vector<float>& values, std::int64_t rows, std::int64_t columns,
                         const std::string& caption) {
  TORCH_CHECK(std::ssize(values) == rows * columns && !values.empty(), "heat_part: ", values.size(), " values for ",
              rows, " x ", columns, " patches");
  nlohmann::json out = image_part(image, "", caption), shown = nlohmann::json::array();
  for (const float value : values) shown.push_back(short_value(value));
  out["heat"] = {{"values", shown}, {"rows", rows}, {"columns", columns}};
  return out;
}

nlohmann::json mask_part(const Image& image, const std::vector<std::uint8_t>& mask, const std::string& caption) {
  TORCH_CHECK(std::ssize(mask) == image.height * image.width, "mask_part: the mask does not have the image's size");
  nlohmann::json out = image_part(image, "", caption);
  out["mask"] = encoded(cv::Mat(static_cast<int>(image.height), static_cast<int>(image.width), CV_8UC1,
                                const_cast<std::uint8_t*>(mask.data())),
                        "png");
  return out;
}

nlohmann::json bars_card(const std::string& title, const std::vector<std::pair<std::string, double>>& values) {
  return {{"type", "bars"}, {"title", title}, {"values", values}};
}

nlohmann::json make_sheet(const MapExample& example) {
  nlohmann::json out = {{"images", {image_part(example.image, example.name)}}};
  if (!example.text.empty()) out["quote"] = example.text;
  for (const MapExample::Map& map : example.maps)
    out["images"].push_back(heat_part(example.image, map.patches, example.rows, example.columns,
                                      map.text + (map.cosine ? " \u00b7 " + fixed(*map.cosine, 3) : "")));
  return out;
}

}  // namespace tessera::report
