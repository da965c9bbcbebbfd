#pragma once
// Generates images for the tests of src/data.

#include <string>
#include <vector>

#include <opencv2/core.hpp>
#include <opencv2/imgcodecs.hpp>

#include <tessera/base/random.h>
#include <tessera/sample.h>

namespace tessera::test {

inline Image noise(std::int64_t height, std::int64_t width, std::uint64_t seed) {
  Image image{height, width, std::vector<std::uint8_t>(static_cast<std::size_t>(height * width * 3))};
  Random random(seed, Purpose::shapes, {77});
  for (auto& value : image.pixels) value = static_cast<std::uint8_t>(random.next() >> 24);
  return image;
}

/// Returns the image with its channels in blue-green-red order, followed by a varying alpha channel if `channels` is 4.
inline cv::Mat mat_of(const Image& image, int channels) {
  cv::Mat mat(static_cast<int>(image.height), static_cast<int>(image.width), CV_8UC(channels));
  for (std::size_t i = 0; i < mat.total(); ++i)
    for (int c = 0; c < channels; ++c)
      mat.data[i * static_cast<std::size_t>(channels) + static_cast<std::size_t>(c)] =
          c < 3 ? image.pixels[3 * i + static_cast<std::size_t>(2 - c)] : static_cast<std::uint8_t>(i * 37);
  return mat;
}

inline std::string encode_mat(const cv::Mat& mat, const std::string& extension,
                              const std::vector<int>& parameters = {}) {
  std::vector<unsigned char> bytes;
  cv::imencode(extension, mat, bytes, parameters);
  return {bytes.begin(), bytes.end()};
}

inline std::string encode(const Image& image, const std::string& extension) {
  return encode_mat(mat_of(image, 3), extension);
}

/// Returns a PNG file of 8 x 9 random pixels.
inline std::string noise_png(int seed) {
  return encode(noise(8, 9, static_cast<std::uint64_t>(seed)), ".png");
}

}  // namespace tessera::test
