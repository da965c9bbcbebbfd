#include <algorithm>
#include <cmath>
#include <cstring>

#include <c10/util/Exception.h>
#include <opencv2/imgcodecs.hpp>
#include <opencv2/imgproc.hpp>

#include "src/data/image/encode.h"
#include <tessera/base/error.h>

namespace tessera {
namespace {

std::string encode(const char* extension, const cv::Mat& image, const std::vector<int>& options) {
  std::vector<std::uint8_t> bytes;
  TORCH_CHECK(cv::imencode(extension, image, bytes, options), "cannot encode a ", image.rows, " x ", image.cols,
              " image as ", extension);
  return {bytes.begin(), bytes.end()};
}

cv::Mat to_bgr(const Image& image) {
  const cv::Mat rgb(static_cast<int>(image.height), static_cast<int>(image.width), CV_8UC3,
                    const_cast<std::uint8_t*>(image.pixels.data()));  // OpenCV has no views of const data
  cv::Mat bgr;
  cv::cvtColor(rgb, bgr, cv::COLOR_RGB2BGR);
  return bgr;
}

}  // namespace

std::string encode_png(const Image& image) {
  return encode(".png", to_bgr(image), {});
}

std::string encode_jpeg(const Image& image, int quality) {
  return encode(".jpg", to_bgr(image), {cv::IMWRITE_JPEG_QUALITY, quality});
}

std::string encode_mask(const std::vector<std::uint8_t>& mask, std::int64_t height, std::int64_t width) {
  TORCH_CHECK(static_cast<std::int64_t>(mask.size()) == height * width, "encode_mask: ", mask.size(),
              " values, expected a mask of ", height, " x ", width);
  const cv::Mat grey(static_cast<int>(height), static_cast<int>(width), CV_8UC1,
                     const_cast<std::uint8_t*>(mask.data()));
  return encode(".png", grey, {});
}

std::string encode_depth(const std::vector<float>& depth, std::int64_t height, std::int64_t width, double units) {
  TORCH_CHECK(static_cast<std::int64_t>(depth.size()) == height * width, "encode_depth: ", depth.size(),
              " values, expected depths of ", height, " x ", width);
  cv::Mat grey(static_cast<int>(height), static_cast<int>(width), CV_16UC1);
  const auto in_units = [units](float meters) {
    return static_cast<std::uint16_t>(std::lround(std::clamp(meters * units, 0.0, 65535.0)));
  };
  std::ranges::transform(depth, grey.ptr<std::uint16_t>(), in_units);
  return encode(".png", grey, {});
}

std::string npy_header(const std::string& type, const std::vector<std::int64_t>& shape) {
  std::string sizes;
  for (const std::int64_t size : shape) sizes += concat(sizes.empty() ? "" : " ", size, ",");
  if (shape.size() > 1) sizes.pop_back();  // as Python writes shapes: (3,) and (3, 4)
  std::string header = concat("{'descr': '", type, "', 'fortran_order': False, 'shape': (", sizes, "), }");
  constexpr std::size_t kPreamble = 10;  // magic, version, header length
  header.append(63 - (kPreamble + header.size()) % 64, ' ');
  header += '\n';
  std::string out("\x93NUMPY\x01\x00", 8);
  out += static_cast<char>(header.size() & 255);
  out += static_cast<char>(header.size() >> 8);
  return out + header;
}

std::string encode_npy(const std::vector<float>& values, std::int64_t rows, std::int64_t columns) {
  TORCH_CHECK(static_cast<std::int64_t>(values.size()) == rows * columns, "encode_npy: ", values.size(),
              " values, expected a matrix of ", rows, " x ", columns);
  std::string out = npy_header("<f4", {rows, columns});
  const std::size_t start = out.size();
  out.resize(start + values.size() * sizeof(float));
  std::memcpy(out.data() + start, values.data(), values.size() * sizeof(float));
  return out;
}

}  // namespace tessera
